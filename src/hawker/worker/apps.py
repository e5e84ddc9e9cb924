"""Apps: their records and the few operations on them."""

from typing import Any

from hawker.app import DEFAULT_ORG, app_name, network_name
from hawker.clock import Clock
from hawker.errors import NameTaken, NotFound, WrongState
from hawker.ids import AppName
from hawker.netpolicy.private_networks import number_of
from hawker.record.app import APPS, CARRIED_APPS, POLICIES, RELEASES, SECRET_KEYS, SECRETS, AppRecord
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS
from hawker.record.machine import BY_APP
from hawker.record.volume import GOING
from hawker.secret.certificates import forget_all
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.volume.table import VolumeTable
from hawker.worker.ip_assignments import release_all


class AppTable:
    """Apps of this node. A machine needs one; deleting one that has machines is the caller's business to prevent."""

    def __init__(self, store: Store, clock: Clock, volumes: VolumeTable) -> None:
        self._store = store
        self._clock = clock
        self._volumes = volumes

    async def create(self, name: str, *, org: str | None, network: str | None, key: str | None) -> AppRecord:
        """Raises `NameTaken`; the same idempotency key and name return the first app."""
        checked, org, network = app_name(name), org or DEFAULT_ORG, network_name(network)
        own, number = self._clock.token_bytes(8).hex(), int.from_bytes(self._clock.token_bytes(4), "big") >> 1
        now = self._clock.now()

        def apply(tx: Tx) -> AppRecord:
            there = tx.get(APPS, checked)
            if there is None:
                record = AppRecord(
                    id=own,
                    number=number,
                    name=checked,
                    org=org,
                    network=network,
                    network_id=number_of(tx, org, network),
                    created_at=now,
                    idempotency_key=key,
                )
                tx.put(APPS, checked, record)
                return record
            if key is not None and there.idempotency_key == key:
                return there
            raise NameTaken("Validation failed: Name has already been taken")

        return await self._store.write(apply)

    def get(self, reader: Reader, name: str) -> AppRecord:
        record = reader.get(APPS, name)
        if record is None:
            raise NotFound("app not found")
        return record

    def list(self, org: str | None) -> list[AppRecord]:
        return [record for _, record in self._store.scan(APPS) if org in (None, "", record.org)]

    def machine_count(self, reader: Reader, name: str) -> int:
        return reader.count(BY_APP, f"{name}/")

    def volume_count(self, reader: Reader, name: AppName) -> int:
        return self._volumes.count(reader, name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Raises `WrongState` while the app has machines, or volumes that are not to go: `force` lets go of those, and
        they can be had back for a while."""

        def apply(tx: Tx) -> None:
            self.get(tx, name)
            count = self.machine_count(tx, name)
            if count:
                raise WrongState(f"app '{name}' still has {count} machines: destroy them first")
            volumes = [record for record in self._volumes.of_app(tx, AppName(name)) if record.state not in GOING]
            if volumes and not force:
                raise WrongState(f"app '{name}' still has {len(volumes)} volumes: destroy them first")
            for volume in volumes:
                self._volumes.let_go(tx, volume)
            tx.delete(APPS, name)
            release_all(tx, name)
            forget_all(tx, name)
            _forget(tx, POLICIES, name)
            _forget(tx, RELEASES, name)
            _forget(tx, DEPLOYS, name)
            _forget(tx, DEPLOY_SLOTS, name)
            _forget(tx, SECRETS, name)
            _forget(tx, SECRET_KEYS, name)
            tx.delete(CARRIED_APPS, name)

        await self._store.write(apply)


def _forget(tx: Tx, bucket: Bucket[Any], app: str) -> None:
    for key, _ in list(tx.scan(bucket, f"{app}/")):
        tx.delete(bucket, key)
