"""Secrets of apps: sealed values that machines get as variables and files. A machine is given those that its app has
when it is created or updated, and keeps them until it is updated again (contract 3.16).
"""

import base64
import re
from collections.abc import Mapping

import msgspec

from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.config.process_rules import in_files, in_processes
from hawker.errors import NotFound, Unprocessable, WrongState
from hawker.ids import AppName, MachineId, Version
from hawker.record.app import APPS, PINNED, SECRETS, SECRETS_VERSIONS, Pinned, SecretRecord, SecretsVersion
from hawker.store.contract import Reader, Store, Tx
from hawker.vault import Vault

MAX_SECRETS = 256
MAX_VALUE_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class Secrets:
    def __init__(self, store: Store, vault: Vault, clock: Clock) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock

    def list(self, app: str) -> list[SecretRecord]:
        return [record for _, record in self._store.scan(SECRETS, f"{app}/")]

    def get(self, app: str, name: str) -> SecretRecord:
        record = self._store.get(SECRETS, _key(app, name))
        if record is None:
            raise NotFound(f"secret {name} not found")
        return record

    def value(self, app: str, record: SecretRecord) -> str:
        return self._vault.open(_key(app, record.name), record.sealed).decode()

    def version(self, reader: Reader, app: str) -> int:
        """Zero for an app that never had any."""
        counter = reader.get(SECRETS_VERSIONS, app)
        return 0 if counter is None else counter.number

    def check_version(self, reader: Reader, app: str, least: int | None) -> None:
        """Checks the version that the caller has seen. Raises `WrongState` when it is not here."""
        here = self.version(reader, app)
        if least is not None and least > here:
            raise WrongState(f"version {least} of the secrets is not known here: the newest is {here}")

    async def set(self, app: str, values: Mapping[str, str | None]) -> int:
        """Set each value, or remove it when it is None, all at once; the new version. Raises `Unprocessable`."""
        for name, value in values.items():
            _check(name, value)
        made = {name: self._made(app, name, value) for name, value in values.items() if value is not None}

        def apply(tx: Tx) -> int:
            if tx.get(APPS, app) is None:
                raise NotFound("app not found")
            for name in values:
                if name in made:
                    _put(tx, app, made[name])
                else:
                    tx.delete(SECRETS, _key(app, name))
            if tx.count(SECRETS, f"{app}/") > MAX_SECRETS:
                raise Unprocessable(f"an app has at most {MAX_SECRETS} secrets")
            return self.count(tx, app)

        return await self._store.write(apply)

    async def delete(self, app: str, name: str) -> int:
        def apply(tx: Tx) -> int:
            if tx.get(SECRETS, _key(app, name)) is None:
                raise NotFound(f"secret {name} not found")
            tx.delete(SECRETS, _key(app, name))
            return self.count(tx, app)

        return await self._store.write(apply)

    def pin(self, tx: Tx, app: AppName, machine_id: MachineId, version: Version, *, skip: bool) -> None:
        """Keeps the secrets that the machine's version is given, in the transaction that makes the version."""
        sealed = {} if skip else {record.name: record.sealed for _, record in tx.scan(SECRETS, f"{app}/")}
        if sealed:
            tx.put(PINNED, f"{machine_id}/{version}", Pinned(app=app, sealed=sealed))

    def pin_opened(
        self, tx: Tx, app: AppName, machine_id: MachineId, version: Version, values: Mapping[str, str]
    ) -> None:
        """Keeps the secrets of a version as `pin` does, with values that come from another node."""
        sealed = {name: self._vault.seal(_key(app, name), value.encode()) for name, value in values.items()}
        if sealed:
            tx.put(PINNED, f"{machine_id}/{version}", Pinned(app=app, sealed=sealed))

    def pinned(self, reader: Reader, machine_id: MachineId, version: Version) -> dict[str, str]:
        """The secrets that a machine's version was given, by name, in clear. Raises `Fault` when one of them cannot be
        read."""
        found = reader.get(PINNED, f"{machine_id}/{version}")
        if found is None:
            return {}
        return {name: self._vault.open(_key(found.app, name), sealed).decode() for name, sealed in found.sealed.items()}

    def check_names(self, app: str, config: MachineConfig, *, skip: bool, reader: Reader | None = None) -> None:
        """Whether what a config names is there to be given. Raises `Unprocessable` naming the field."""
        scanned = () if skip else (reader or self._store).scan(SECRETS, f"{app}/")
        there = {record.name: record for _, record in scanned}
        for path, name in (*in_files(config), *in_processes(config)):
            if name not in there:
                why = "skip_secrets leaves it out" if skip else f"app '{app}' has no such secret"
                raise Unprocessable(f"config.{path}: {name!r:.80}: {why}")
        for path, name in in_files(config):
            if not _is_base64(self.value(app, there[name])):
                raise Unprocessable(f"config.{path}: the value of {name!r:.80} is not base64")

    def sealed(self, app: str, name: str, value: bytes, *, created_at: float, updated_at: float) -> SecretRecord:
        """A secret as it is kept here."""
        key = _key(app, name)
        return SecretRecord(
            name=name,
            sealed=self._vault.seal(key, value),
            digest=self._vault.digest(key, value),
            created_at=created_at,
            updated_at=updated_at,
        )

    def _made(self, app: str, name: str, value: str) -> SecretRecord:
        now = self._clock.now()
        return self.sealed(app, name, value.encode(), created_at=now, updated_at=now)

    def count(self, tx: Tx, app: str) -> int:
        """Counts one more change and returns the new version."""
        number = self.version(tx, app) + 1
        tx.put(SECRETS_VERSIONS, app, SecretsVersion(number=number))
        return number


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _put(tx: Tx, app: str, fresh: SecretRecord) -> None:
    there = tx.get(SECRETS, _key(app, fresh.name))
    created_at = fresh.created_at if there is None else there.created_at
    tx.put(SECRETS, _key(app, fresh.name), msgspec.structs.replace(fresh, created_at=created_at))


def _key(app: str, name: str) -> str:
    return f"{app}/{name}"


def _check(name: str, value: str | None) -> None:
    if not _NAME.fullmatch(name):
        raise Unprocessable(f"{name!r:.80} cannot be the name of a secret: use letters, digits and underscores")
    if value is not None and len(value.encode()) > MAX_VALUE_BYTES:
        raise Unprocessable(f"secret {name} is larger than {MAX_VALUE_BYTES} bytes")
    if value is not None and "\0" in value:
        raise Unprocessable(f"secret {name} has a zero byte in it")
