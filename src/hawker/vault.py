"""Sealing what must not be read from the disk: AES-256-GCM under a key of the node's own, which is a file beside the
store and in no backup of it. What a value belongs to is sealed with it, so nothing sealed can be put elsewhere.
"""

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import CannotStart, Fault

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
else:
    exceptions = deferred("cryptography.exceptions")
    aead = deferred("cryptography.hazmat.primitives.ciphers.aead")

KEY_BYTES = 32
_NONCE_BYTES = 12
_DIGEST_BYTES = 8


class Vault:
    """`key` is 32 bytes. Nothing of it is ever logged or shown."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    @cached_property
    def _cipher(self) -> "AESGCM":
        """Made for the first value: a boot need not wait for the library."""
        return aead.AESGCM(self._key)

    def seal(self, owner: str, value: bytes) -> bytes:
        """Seals `value` for its owner. `owner` names what the value belongs to, such as `app/NAME`."""
        nonce = self._clock.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, owner.encode())

    def open(self, owner: str, sealed: bytes) -> bytes:
        """Raises `Fault` when it was sealed under another key, or for another owner."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], owner.encode())
        except (exceptions.InvalidTag, ValueError) as error:
            raise Fault(
                f"secret {owner} cannot be read: the node's key was replaced since it was set; set it again"
            ) from error

    def key_for(self, purpose: str) -> bytes:
        """A key of 32 bytes for one purpose. Nobody can compute the node's key from it."""
        return hashlib.blake2b(purpose.encode(), digest_size=KEY_BYTES, key=self._key, person=b"hawker subkey").digest()

    def digest(self, owner: str, value: bytes) -> str:
        """A digest that tells whether two values of one owner are the same, and says nothing to anybody without the
        key."""
        hashed = hashlib.blake2b(value, digest_size=_DIGEST_BYTES, key=self._key, person=b"hawker secret")
        hashed.update(owner.encode())
        return hashed.hexdigest()


def load_or_create_key(path: Path, clock: Clock) -> bytes:
    """The key in `path`; at first boot a new one, written with mode 0600 and synced before use."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load(path)
    key = clock.token_bytes(KEY_BYTES)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    return key


def _load(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise CannotStart(f"the key file {path} is damaged: restore it, or remove it and set every app's secrets again")
    return key
