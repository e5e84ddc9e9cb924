"""Bodies about the secret keys of an app. Bytes are base64, as clients send and read them."""

from datetime import datetime

from hawker.api.bodies.body import Answer, Request


class SecretKey(Answer, frozen=True, kw_only=True):
    """`public_key` only of a type that has one; the key itself never leaves the node."""

    name: str
    type: str
    created_at: datetime
    updated_at: datetime
    public_key: bytes | None = None


class SecretKeys(Answer, frozen=True, kw_only=True):
    secret_keys: tuple[SecretKey, ...]


class SetSecretKeyRequest(Request, frozen=True, kw_only=True):
    """`value` is a key made elsewhere; generating one takes only the `type`."""

    type: str
    value: bytes | None = None


class SecretKeySet(Answer, frozen=True, kw_only=True):
    """`Version` is the same as `version`, for clients of an older API."""

    name: str
    type: str
    created_at: datetime
    updated_at: datetime
    version: int
    Version: int
    public_key: bytes | None = None


class EncryptRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    associated_data: bytes | None = None


class Encrypted(Answer, frozen=True, kw_only=True):
    ciphertext: bytes


class DecryptRequest(Request, frozen=True, kw_only=True):
    ciphertext: bytes
    associated_data: bytes | None = None


class Decrypted(Answer, frozen=True, kw_only=True):
    plaintext: bytes


class SignRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes


class Signed(Answer, frozen=True, kw_only=True):
    signature: bytes


class VerifyRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    signature: bytes
