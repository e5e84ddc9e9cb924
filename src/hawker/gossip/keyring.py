"""The cluster's keys: at most four, one of them the primary that seals; all of them open.

A key is replaced by three steps, each of which reaches every node before the next: `added`, `using`, `removed`. Each
step is one version, so nodes that hear of two agree on the newer one.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping

import msgspec

from hawker.clock import Clock
from hawker.errors import BadRequest, Conflict

KEY_BYTES = 32
MOST_KEYS = 4
_IDS = 256
_MOST_VERSION = (1 << 38) - 1


class GossipKeyring(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` by their number, which is what a datagram names; `primary` is one of them."""

    keys: Mapping[int, bytes]
    primary: int
    version: int = 1
    """The version of the ring, 1 or more: each change of the ring adds 1, and the greater one wins."""

    def __repr__(self) -> str:
        return f"Keyring(version={self.version}, primary={self.primary}, keys={sorted(self.keys)})"

    def added(self, key: bytes) -> "GossipKeyring":
        """The ring with one key more, that opens but does not yet seal. Raises `BadRequest`, `Conflict`."""
        if len(key) != KEY_BYTES:
            raise BadRequest(f"a cluster key has {KEY_BYTES} bytes, this one {len(key)}")
        if len(self.keys) >= MOST_KEYS:
            raise Conflict(f"the keyring holds {MOST_KEYS} keys; remove one that is no longer used first")
        number = next(each % _IDS for each in range(max(self.keys) + 1, _IDS * 2) if each % _IDS not in self.keys)
        return GossipKeyring(keys={**self.keys, number: key}, primary=self.primary, version=self.version + 1)

    def using(self, number: int) -> "GossipKeyring":
        """The ring in which the key of this number seals from now on. Raises `BadRequest`."""
        self._has(number)
        return GossipKeyring(keys=self.keys, primary=number, version=self.version + 1)

    def removed(self, number: int) -> "GossipKeyring":
        """The ring without the key of this number. Raises `BadRequest`, and `Conflict` for the primary."""
        self._has(number)
        if number == self.primary:
            raise Conflict(f"key {number} is the primary; use another one first")
        kept = {each: key for each, key in self.keys.items() if each != number}
        return GossipKeyring(keys=kept, primary=self.primary, version=self.version + 1)

    def _has(self, number: int) -> None:
        if number not in self.keys:
            raise BadRequest(f"no key {number} in the keyring; it has {', '.join(map(str, sorted(self.keys)))}")


def new_keyring(clock: Clock) -> GossipKeyring:
    return GossipKeyring(keys={1: clock.token_bytes(KEY_BYTES)}, primary=1)


def rank_of(keyring: GossipKeyring) -> int:
    """Orders keyrings. Two operators who change the same version at once get one of the two, everywhere the same."""
    content = b"".join(bytes([number]) + key for number, key in sorted(keyring.keys.items()))
    digest = hashlib.blake2b(bytes([keyring.primary]) + content, digest_size=3).digest()
    return min(keyring.version, _MOST_VERSION) << 24 | int.from_bytes(digest, "big")


class StoredKeyring(msgspec.Struct, frozen=True, kw_only=True):
    """The keyring as it stands in a file: keys in base64."""

    version: int
    """The version of the ring, 1 or more."""
    primary: int
    """The number of the key that this node seals with."""
    keys: dict[str, str]
    """The keys by number, each of 32 bytes, in base64."""


def stored(keyring: GossipKeyring) -> StoredKeyring:
    keys = {str(number): base64.b64encode(key).decode() for number, key in sorted(keyring.keys.items())}
    return StoredKeyring(version=keyring.version, primary=keyring.primary, keys=keys)


def loaded(stored: StoredKeyring) -> GossipKeyring:
    """The keyring that a file has. Raises `BadRequest` for what is no keyring."""
    try:
        keys = {int(number): base64.b64decode(key, validate=True) for number, key in stored.keys.items()}
    except (ValueError, binascii.Error) as error:
        raise BadRequest(f"the keyring cannot be read: {error}") from error
    return checked(GossipKeyring(keys=keys, primary=stored.primary, version=stored.version))


def checked(keyring: GossipKeyring) -> GossipKeyring:
    """The same keyring. Raises `BadRequest` if it is none."""
    numbers = sorted(keyring.keys)
    if not 1 <= len(numbers) <= MOST_KEYS or not all(0 <= number < _IDS for number in numbers):
        raise BadRequest(f"a keyring has 1 to {MOST_KEYS} keys with numbers below {_IDS}, this one {numbers}")
    if keyring.primary not in keyring.keys:
        raise BadRequest(f"the keyring's primary {keyring.primary} is none of its keys {numbers}")
    if any(len(key) != KEY_BYTES for key in keyring.keys.values()):
        raise BadRequest(f"a key of the keyring has not {KEY_BYTES} bytes")
    return keyring
