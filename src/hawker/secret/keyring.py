"""What a secret key of each type can do. Pure: keys and data in, bytes out; a random nonce comes from the caller.

Signatures of `es256` are r and s, 32 bytes each, as JOSE has them; its key is the 32 bytes of the scalar and its public
key the uncompressed point. The `nacl_` types are NaCl's: `box` is a sealed box to the key's own public key.
"""

import hmac
from collections.abc import Callable
from enum import StrEnum

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox
from nacl.secret import SecretBox

from hawker.errors import BadRequest, Unprocessable
from hawker.value_object import ValueObject

KEY_BYTES, NONCE_BYTES = 32, 24
_BLOCK_BYTES = 16
_HALF = 12


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """The nonce, then the ciphertext and its tag."""
    return nonce + _derived(key, nonce).encrypt(nonce[_HALF:], plaintext, associated)


def decrypt(key: bytes, data: bytes, associated: bytes) -> bytes:
    """The bytes that `encrypt` was given. Raises `ValueError` when it was not made with this key and these data."""
    nonce, sealed = data[:NONCE_BYTES], data[NONCE_BYTES:]
    if len(nonce) < NONCE_BYTES:
        raise ValueError("too short")
    try:
        return _derived(key, nonce).decrypt(nonce[_HALF:], sealed, associated)
    except InvalidTag as error:
        raise ValueError("not made with this key and these data") from error


def _derived(key: bytes, nonce: bytes) -> AESGCM:
    """A key for the nonce's first half, by CMAC in counter mode; the counter's two blocks are whole, so one subkey."""
    subkey = _doubled(_aes(key, bytes(_BLOCK_BYTES)))
    halves = (bytes([0, counter]) + b"X\0" + nonce[:_HALF] for counter in (1, 2))
    return AESGCM(b"".join(_aes(key, _xor(half, subkey)) for half in halves))


def _aes(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def _doubled(block: bytes) -> bytes:
    """Times x in GF(2^128)."""
    value = int.from_bytes(block, "big") << 1
    overflow = value >> 128
    return ((value ^ (0x87 if overflow else 0)) & ((1 << 128) - 1)).to_bytes(_BLOCK_BYTES, "big")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-GCM with a nonce long enough to be drawn at random for ever.

_SCALAR_BYTES = 32
_AUTH_BYTES = 32

Draw = Callable[[int], bytes]
"""A function that draws so many random bytes."""


class KeyType(StrEnum):
    ES256 = "es256"
    HS256 = "hs256"
    HS384 = "hs384"
    HS512 = "hs512"
    XAES256GCM = "xaes256gcm"
    NACL_AUTH = "nacl_auth"
    NACL_BOX = "nacl_box"
    NACL_SECRETBOX = "nacl_secretbox"
    NACL_SIGN = "nacl_sign"


_BYTES = {KeyType.HS384: 48, KeyType.HS512: 64}
_MACS = {KeyType.HS256: "sha256", KeyType.HS384: "sha384", KeyType.HS512: "sha512", KeyType.NACL_AUTH: "sha512"}
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def key_type(name: str) -> KeyType:
    """The type of this name. Raises `Unprocessable`."""
    try:
        return KeyType(name)
    except ValueError as error:
        raise Unprocessable(f"type: {name!r:.40} is none of {', '.join(KeyType)}") from error


class Key(ValueObject, frozen=True):
    """One secret key. Every operation raises `BadRequest` when its type cannot do it."""

    type: KeyType
    value: bytes
    """The bytes of the key, as many as its type asks."""

    def __repr__(self) -> str:
        return f"Key({self.type.value})"

    @property
    def public(self) -> bytes | None:
        match self.type:
            case KeyType.ES256:
                return _scalar(self.value).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            case KeyType.NACL_BOX:
                return bytes(PrivateKey(self.value).public_key)
            case KeyType.NACL_SIGN:
                return _signing(self.value).public_key().public_bytes_raw()
            case _:
                return None

    def encrypt(self, plaintext: bytes, associated: bytes, draw: Draw) -> bytes:
        match self.type:
            case KeyType.XAES256GCM:
                return encrypt(self.value, draw(NONCE_BYTES), plaintext, associated)
            case KeyType.NACL_SECRETBOX:
                self._without(associated)
                return bytes(SecretBox(self.value).encrypt(plaintext, draw(SecretBox.NONCE_SIZE)))
            case KeyType.NACL_BOX:
                self._without(associated)
                return SealedBox(PrivateKey(self.value).public_key).encrypt(plaintext)
            case _:
                raise self._cannot("encrypt")

    def decrypt(self, ciphertext: bytes, associated: bytes) -> bytes:
        try:
            match self.type:
                case KeyType.XAES256GCM:
                    return decrypt(self.value, ciphertext, associated)
                case KeyType.NACL_SECRETBOX:
                    self._without(associated)
                    return SecretBox(self.value).decrypt(ciphertext)
                case KeyType.NACL_BOX:
                    self._without(associated)
                    return SealedBox(PrivateKey(self.value)).decrypt(ciphertext)
                case _:
                    raise self._cannot("decrypt")
        except (ValueError, CryptoError) as error:
            raise BadRequest("the ciphertext was not made with this key") from error

    def sign(self, data: bytes) -> bytes:
        match self.type:
            case KeyType.ES256:
                r, s = decode_dss_signature(_scalar(self.value).sign(data, ec.ECDSA(hashes.SHA256())))
                return r.to_bytes(_SCALAR_BYTES, "big") + s.to_bytes(_SCALAR_BYTES, "big")
            case KeyType.NACL_SIGN:
                return _signing(self.value).sign(data)
            case _:
                return self._mac(data)

    def verify(self, data: bytes, signature: bytes) -> None:
        """Checks a signature. Raises `BadRequest` when the signature is not this key's on these data."""
        bad = BadRequest("the signature is not this key's")
        match self.type:
            case KeyType.ES256:
                if not _is_es256(self.value, data, signature):
                    raise bad
            case KeyType.NACL_SIGN:
                try:
                    _signing(self.value).public_key().verify(signature, data)
                except InvalidSignature:
                    raise bad from None
            case _:
                if not hmac.compare_digest(self._mac(data), signature):
                    raise bad

    def _mac(self, data: bytes) -> bytes:
        if self.type not in _MACS:
            raise self._cannot("sign")
        made = hmac.digest(self.value, data, _MACS[self.type])
        return made[:_AUTH_BYTES] if self.type is KeyType.NACL_AUTH else made

    def _without(self, associated: bytes) -> None:
        if associated:
            raise BadRequest(f"a key of type {self.type} takes no associated_data")

    def _cannot(self, what: str) -> BadRequest:
        return BadRequest(f"a key of type {self.type} cannot {what}")


def make(type: KeyType, draw: Draw) -> Key:
    """A new random key of this type."""
    value = draw(_BYTES.get(type, 32))
    while type is KeyType.ES256 and not 0 < int.from_bytes(value, "big") < _ORDER:
        value = draw(_SCALAR_BYTES)
    return Key(type, value)


def read(type: KeyType, value: bytes) -> Key:
    """A key that was made elsewhere. Raises `Unprocessable` when it is none of this type."""
    wanted = _BYTES.get(type, 32)
    if type is KeyType.NACL_SIGN and len(value) == 2 * wanted:  # NaCl's own form: the seed and the public key
        seed = Key(type, value[:wanted])
        if seed.public != value[wanted:]:
            raise Unprocessable("value: the public half is not of the private one")
        return seed
    if len(value) != wanted:
        raise Unprocessable(f"value: a key of type {type} has {wanted} bytes, not {len(value)}")
    if type is KeyType.ES256 and not 0 < int.from_bytes(value, "big") < _ORDER:
        raise Unprocessable("value: no private key of P-256")
    return Key(type, value)


def _scalar(value: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(value, "big"), ec.SECP256R1())


def _is_es256(value: bytes, data: bytes, signature: bytes) -> bool:
    if len(signature) != 2 * _SCALAR_BYTES:
        return False
    r, s = (int.from_bytes(half, "big") for half in (signature[:_SCALAR_BYTES], signature[_SCALAR_BYTES:]))
    try:
        _scalar(value).public_key().verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _signing(value: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(value)
