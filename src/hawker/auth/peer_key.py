"""What nodes of a cluster show each other, made from the cluster's key: the token of their API, the key under which
they seal what of an app travels, and the one that issues their certificates. None of them tells anything of the
cluster's key or of another. With the token, and with the root token of the node beside, one may call between nodes.
"""

import hmac
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.api.grant import Everything, Grant
from hawker.errors import Unauthorized
from hawker.log import Secret

PREFIX = "hwp_"
_BYTES = 32


def peer_token(key: bytes) -> str:
    return f"{PREFIX}{_derived(key, b'hawker peer token').hex()}"


def app_bundle_key(key: bytes) -> bytes:
    """The key of 32 bytes under which bundles of apps are sealed."""
    return _derived(key, b"hawker luggage")


def presence_key(key: bytes) -> bytes:
    """The key of 32 bytes with which hosts authenticate when they are asked whether they are there."""
    return _derived(key, b"hawker presence")


def authority_key(key: bytes) -> bytes:
    """The private key of 32 bytes of what issues the nodes' certificates."""
    return _derived(key, b"hawker node authority")


def _derived(key: bytes, purpose: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256."""
    return HKDF(algorithm=SHA256(), length=_BYTES, salt=None, info=purpose).derive(key)


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
        """The token that this node shows."""
        return Secret(self._tokens()[0].decode())

    def _tokens(self) -> tuple[bytes, ...]:
        keys = tuple(self._keys())
        if keys != self._known:
            self._known, self._made = keys, tuple(peer_token(key).encode() for key in keys)
        return self._made
