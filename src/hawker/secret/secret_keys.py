"""Secret keys of apps: sealed in the store, used in place, never shown."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import NotFound, Unprocessable
from hawker.record.app import APPS, SECRET_KEYS, SecretKeyRecord
from hawker.secret.secrets import Secrets
from hawker.store.contract import Store, Tx
from hawker.vault import Vault

if TYPE_CHECKING:
    from hawker.secret import keyring
    from hawker.secret.keyring import Key
else:
    keyring = deferred("hawker.secret.keyring")

T = TypeVar("T")

MAX_KEYS = 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class SecretKeyStore:
    """Their changes count in the same version as those of the app's secrets."""

    def __init__(self, store: Store, vault: Vault, secrets: Secrets, clock: Clock) -> None:
        self._store = store
        self._vault = vault
        self._secrets = secrets
        self._clock = clock

    def list(self, app: str) -> list[SecretKeyRecord]:
        return [record for _, record in self._store.scan(SECRET_KEYS, f"{app}/")]

    def get(self, app: str, name: str) -> SecretKeyRecord:
        record = self._store.get(SECRET_KEYS, f"{app}/{name}")
        if record is None:
            raise NotFound(f"secret key {name} not found")
        return record

    def key(self, app: str, name: str) -> "Key":
        """The key of this name, opened. Raises `Fault` when the node's own key was replaced."""
        record = self.get(app, name)
        return keyring.Key(keyring.KeyType(record.type), self._vault.open(_owner(app, name), record.sealed))

    async def set(self, app: str, name: str, key: "Key") -> tuple[SecretKeyRecord, int]:
        """The record and the new version. Raises `Unprocessable`, `NotFound` when there is no such app."""
        if not _NAME.fullmatch(name):
            raise Unprocessable(f"{name!r:.80} cannot be the name of a key: use letters, digits, dashes and dots")
        sealed, now = self._vault.seal(_owner(app, name), key.value), self._clock.now()
        fresh = SecretKeyRecord(
            name=name, type=key.type.value, sealed=sealed, public=key.public, created_at=now, updated_at=now
        )

        def apply(tx: Tx) -> SecretKeyRecord:
            there = tx.get(SECRET_KEYS, f"{app}/{name}")
            if there is None and tx.count(SECRET_KEYS, f"{app}/") >= MAX_KEYS:
                raise Unprocessable(f"an app has at most {MAX_KEYS} secret keys")
            record = fresh if there is None else msgspec.structs.replace(fresh, created_at=there.created_at)
            tx.put(SECRET_KEYS, f"{app}/{name}", record)
            return record

        return await self._change(app, apply)

    async def delete(self, app: str, name: str) -> int:
        def apply(tx: Tx) -> None:
            if tx.get(SECRET_KEYS, f"{app}/{name}") is None:
                raise NotFound(f"secret key {name} not found")
            tx.delete(SECRET_KEYS, f"{app}/{name}")

        return (await self._change(app, apply))[1]

    async def _change(self, app: str, apply: Callable[[Tx], T]) -> tuple[T, int]:
        def change(tx: Tx) -> tuple[T, int]:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            return apply(tx), self._secrets.count(tx, app)

        return await self._store.write(change)


def _owner(app: str, name: str) -> str:
    """Apart from a secret of the same name."""
    return f"{app}/key {name}"
