"""The records of deploys: read, changed and dropped. A deploy's `serial` rises with each change of it or of a slot."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.record.app import RELEASES, ReleaseRecord
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, DeployRecord, DeployWish, SlotRecord, deploy_key, slot_key
from hawker.store.contract import Reader, Store, Tx

KEPT = 20
"""Deploys of an app, the newest: older ones leave their release."""
_LOOK_S = 0.1


LAST_STAGE = "old machines go"
"""The text of the last stage, for people."""


def is_last(record: DeployRecord) -> bool:
    """Whether old machines go, so that nothing goes back any more. Older versions know it by the text alone."""
    return record.no_way_back or record.stage == LAST_STAGE


class DeployTable:
    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    def find(self, reader: Reader, app: str, version: int) -> DeployRecord:
        """The record of deploy `version` of `app`. Raises `NotFound`."""
        record = reader.get(DEPLOYS, deploy_key(app, version))
        if record is None:
            raise NotFound(f"app '{app}' has no deploy {version}")
        return record

    def list(self, reader: Reader, app: str) -> list[tuple[DeployRecord, ReleaseRecord]]:
        """The deploys of `app` with their releases, newest first."""
        found = [record for _, record in reader.scan(DEPLOYS, f"{app}/")][::-1]
        return [
            (record, release)
            for record in found
            if (release := reader.get(RELEASES, deploy_key(app, record.version))) is not None
        ]

    def slots(self, reader: Reader, app: str, version: int) -> Sequence[SlotRecord]:
        return [slot for _, slot in reader.scan(DEPLOY_SLOTS, f"{deploy_key(app, version)}/")]

    def slot(self, reader: Reader, app: str, version: int, number: int) -> SlotRecord:
        """The slot of this number in deploy `version` of `app`. Raises `NotFound`."""
        slot = reader.get(DEPLOY_SLOTS, slot_key(app, version, number))
        if slot is None:
            raise NotFound(f"deploy {version} of app '{app}' has no slot {number}")
        return slot

    def insert(self, tx: Tx, app: str, record: DeployRecord, slots: Sequence[SlotRecord]) -> None:
        """Writes a deploy and its slots, and deletes deploys that are older than the newest few."""
        tx.put(DEPLOYS, deploy_key(app, record.version), record)
        for slot in slots:
            tx.put(DEPLOY_SLOTS, slot_key(app, record.version, slot.number), slot)
        keys = [key for key, _ in tx.scan(DEPLOYS, f"{app}/")]
        for old in keys[:-KEPT]:
            tx.delete(DEPLOYS, old)
            for key, _ in list(tx.scan(DEPLOY_SLOTS, f"{old}/")):
                tx.delete(DEPLOY_SLOTS, key)

    def change(self, tx: Tx, app: str, version: int, /, **fields: Any) -> DeployRecord:
        """Changes fields of a deploy's record and returns the new record. Raises `NotFound`."""
        record = self.find(tx, app, version)
        after = msgspec.structs.replace(record, **fields, serial=record.serial + 1)
        tx.put(DEPLOYS, deploy_key(app, version), after)
        return after

    def change_slot(self, tx: Tx, app: str, version: int, number: int, /, **fields: Any) -> SlotRecord:
        """Changes fields of a slot's record and returns the new record. Raises `NotFound`."""
        before = self.slot(tx, app, version, number)
        after = msgspec.structs.replace(before, **fields, at=self.clock.now())
        tx.put(DEPLOY_SLOTS, slot_key(app, version, number), after)
        self.change(tx, app, version)
        return after

    async def until(self, app: str, version: int, after: int, within_s: float) -> None:
        """Returns when the deploy's serial is above `after`, or the time is over. Raises `NotFound`."""
        deadline = self.clock.monotonic() + within_s
        while self.find(self.store, app, version).serial <= after and self.clock.monotonic() < deadline:
            await self.clock.sleep(_LOOK_S)

    async def ask(
        self, app: str, version: int, asked: DeployWish, allowed: Callable[[DeployRecord], None]
    ) -> DeployRecord:
        """`allowed` sees the record that is there, and may refuse."""

        def apply(tx: Tx) -> DeployRecord:
            record = self.find(tx, app, version)
            allowed(record)
            return self.change(tx, app, version, asked=asked)

        return await self.store.write(apply)
