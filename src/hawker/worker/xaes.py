"""XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-GCM with a nonce long enough to be drawn at random for ever."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES, NONCE_BYTES = 32, 24
_BLOCK_BYTES = 16
_HALF = 12


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """The nonce, then the ciphertext and its tag."""
    return nonce + _derived(key, nonce).encrypt(nonce[_HALF:], plaintext, associated)


def decrypt(key: bytes, data: bytes, associated: bytes) -> bytes:
    """What `encrypt` was given. Raises `ValueError` when it was not made with this key and these data."""
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
