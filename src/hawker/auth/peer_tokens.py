"""Who may call the API between nodes: whoever holds one of the cluster's keys, as a token made of it shows; and, for
what nodes may not ask of each other, the broker beside a node, with the root token.
"""

import hmac
from collections.abc import Callable, Sequence

from hawker.api.grant import Everything, Grant
from hawker.auth.peer_key import peer_token
from hawker.errors import Unauthorized
from hawker.log import Secret

_NODE, _ROOT = "node", "root"


class PeerTokens:
    """Keeps `api.grant.Authenticate`. `keys` are the cluster's, the one in use first. They are asked each time: keys
    are changed while nodes run, and all of them are good until the last node knows the new one. Without `root` the root
    token is not known here."""

    def __init__(self, keys: Callable[[], Sequence[bytes]], root: Secret | None = None) -> None:
        self._keys = keys
        self._root = None if root is None else root.reveal().encode()
        self._known: tuple[bytes, ...] = ()
        self._made: tuple[bytes, ...] = ()

    async def __call__(self, authorization: str | None, source: str) -> Grant:
        """A node's; in whose name it calls is not in its token. Raises `Unauthorized`."""
        scheme, _, text = (authorization or "").partition(" ")
        shown = text.strip().encode(errors="replace")
        if scheme.lower() == "bearer" and self._root is not None and hmac.compare_digest(shown, self._root):
            return Everything(_ROOT)
        good = [hmac.compare_digest(shown, token) for token in self._tokens()]
        if scheme.lower() != "bearer" or not any(good):
            raise Unauthorized("this address is for nodes of the cluster: ask the one for clients")
        return Everything(_NODE, root=False)

    def own(self) -> Secret:
        """What this node shows."""
        return Secret(self._tokens()[0].decode())

    def _tokens(self) -> tuple[bytes, ...]:
        keys = tuple(self._keys())
        if keys != self._known:
            self._known, self._made = keys, tuple(peer_token(key).encode() for key in keys)
        return self._made
