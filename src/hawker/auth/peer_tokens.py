"""Who may call the API between nodes: whoever holds one of the cluster's keys, as a token made of it shows."""

import hmac
from collections.abc import Callable, Sequence

from hawker.api.grant import Everything, Grant
from hawker.auth.peer_key import peer_token
from hawker.errors import Unauthorized
from hawker.log import Secret

_NODE = "node"


class PeerTokens:
    """Keeps `api.grant.Authenticate`. `keys` are the cluster's, the one in use first. They are asked each time: keys
    are changed while nodes run, and all of them are good until the last node knows the new one."""

    def __init__(self, keys: Callable[[], Sequence[bytes]]) -> None:
        self._keys = keys
        self._known: tuple[bytes, ...] = ()
        self._made: tuple[bytes, ...] = ()

    async def __call__(self, authorization: str | None, source: str) -> Grant:
        """Everything; in whose name the node calls is not in its token."""
        scheme, _, text = (authorization or "").partition(" ")
        shown = text.strip().encode(errors="replace")
        good = [hmac.compare_digest(shown, token) for token in self._tokens()]
        if scheme.lower() != "bearer" or not any(good):
            raise Unauthorized("this address is for nodes of the cluster: ask the one for clients")
        return Everything(_NODE)

    def own(self) -> Secret:
        """What this node shows."""
        return Secret(self._tokens()[0].decode())

    def _tokens(self) -> tuple[bytes, ...]:
        keys = tuple(self._keys())
        if keys != self._known:
            self._known, self._made = keys, tuple(peer_token(key).encode() for key in keys)
        return self._made
