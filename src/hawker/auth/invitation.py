"""What a host shows to join a cluster: a one-time invitation, or the root token itself. Neither is ever sent.

Both are a secret that the asked node knows too. The host proves that it has it, over a key that it made for this one
join; the answer, which carries the cluster's keys, is sealed for that key (X25519, HKDF, AES-256-GCM) together with the
secret. Whoever only listens, or stands between, learns nothing and can join nothing. Pure, but for the keys made.
"""

import base64
import binascii
import hmac

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.log import Secret
from hawker.value_object import ValueObject

PREFIX = "hwj_"
ROOT_INVITE = "root"
"""Stands in the place of an invitation's id when the secret is made of the root token alone."""
KEY_BYTES = 32
_VERSION = 1
_MOST_TEXT = 1024
_NONCE = bytes(12)  # each key seals one answer


class Invitation(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Text is `hwj_` and base64 of this as MessagePack. `id` begins with the id of the node that made it, `secret` is
    32 bytes. When it expires and how often it may be used stands at that node."""

    version: int = _VERSION
    """The number of the invitation's form, 1. Another number is refused as of another version of hawker."""
    cluster: str
    """The id of the cluster that is to be joined; who joins shows it, and is refused where it is another one's."""
    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Invitation({self.id})"


def join_secret(root: Secret, invite: str) -> bytes:
    """The secret of the invitation with this id: 32 bytes that only a holder of the root token can make. So nothing
    secret of an invitation is stored, and a new root token ends all of them."""
    return _derived(root.reveal().encode(), b"", b"hawker join secret 1\0" + invite.encode())


def to_text(invitation: Invitation) -> str:
    return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(invitation)).rstrip(b"=").decode()


def from_text(text: str) -> Invitation:
    """The invitation that `text` is. Raises `ValueError` when it is none, without what is in it."""
    if not text.startswith(PREFIX) or len(text) > _MOST_TEXT:
        raise ValueError("not an invitation")
    packed = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        read = msgspec.msgpack.decode(data, type=Invitation)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not an invitation: part of it is missing, or was changed") from error
    if read.version != _VERSION or len(read.secret) != KEY_BYTES:
        raise ValueError("not an invitation that this version of hawker knows")
    return read


class JoinAttempt(ValueObject, frozen=True):
    """A host that joins. `key` is its private key for this join, 32 bytes: whoever repeats a join shows the same."""

    invite: str
    """The id of the invitation."""
    secret: bytes
    """The secret of the invitation, 32 bytes."""
    key: bytes
    node: str = ""
    """The id of the node that joins; empty until it has one."""

    def __repr__(self) -> str:
        return f"JoinAttempt({self.invite})"

    @property
    def public(self) -> bytes:
        return X25519PrivateKey.from_private_bytes(self.key).public_key().public_bytes_raw()

    @property
    def proof(self) -> bytes:
        return proof_of(self.secret, self.invite, self.public, self.node)

    def opened(self, public: bytes, sealed: bytes) -> bytes:
        """The bytes that the asked node sealed. Raises `ValueError` when whoever answered does not have the secret."""
        try:
            shared = X25519PrivateKey.from_private_bytes(self.key).exchange(X25519PublicKey.from_public_bytes(public))
            key = _answer_key(shared, self.secret, self.public, public)
            return AESGCM(key).decrypt(_NONCE, sealed, self.invite.encode())
        except (InvalidTag, ValueError) as error:
            raise ValueError("the answer is not sealed with this secret") from error


def proof_of(secret: bytes, invite: str, public: bytes, node: str) -> bytes:
    """Binds the secret to one host's key and to the node that it was before, if it was one."""
    said = b"\0".join((b"hawker join proof 1", invite.encode(), node.encode(), public))
    return hmac.digest(secret, said, "sha256")


def is_proof(shown: bytes, secret: bytes, invite: str, public: bytes, node: str) -> bool:
    return hmac.compare_digest(shown, proof_of(secret, invite, public, node))


def sealed_for(public: bytes, secret: bytes, invite: str, plain: bytes) -> tuple[bytes, bytes]:
    """A fresh public key, and `plain` sealed for the host that showed `public`. Raises `ValueError` for a key that is
    none."""
    own = X25519PrivateKey.generate()
    own_public = own.public_key().public_bytes_raw()
    key = _answer_key(own.exchange(X25519PublicKey.from_public_bytes(public)), secret, public, own_public)
    return own_public, AESGCM(key).encrypt(_NONCE, plain, invite.encode())


def _answer_key(shared: bytes, secret: bytes, asker: bytes, answerer: bytes) -> bytes:
    return _derived(shared, secret, b"hawker join answer 1\0" + asker + answerer)


def _derived(material: bytes, salt: bytes, purpose: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt or None, info=purpose).derive(material)
