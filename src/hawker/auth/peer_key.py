"""What nodes of a cluster show each other, made from the cluster's key: the token of their API, the key under which
they seal what of an app travels, and the one that issues their certificates. None of them tells anything of the
cluster's key or of another.
"""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PREFIX = "hwp_"
_BYTES = 32


def peer_token(key: bytes) -> str:
    return f"{PREFIX}{_derived(key, b'hawker peer token').hex()}"


def luggage_key(key: bytes) -> bytes:
    """32 bytes."""
    return _derived(key, b"hawker luggage")


def presence_key(key: bytes) -> bytes:
    """32 bytes: what hosts authenticate with when they are asked whether they are there."""
    return _derived(key, b"hawker presence")


def authority_key(key: bytes) -> bytes:
    """32 bytes: the private key of what issues the nodes' certificates."""
    return _derived(key, b"hawker node authority")


def _derived(key: bytes, purpose: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256."""
    return HKDF(algorithm=SHA256(), length=_BYTES, salt=None, info=purpose).derive(key)
