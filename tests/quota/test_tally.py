"""The tally has what counting all records has, whatever is written in whatever order."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from hawker.ids import AppName, MachineId, VolumeId
from hawker.quota.quotas import UsageCount, app_subject, org_subject
from hawker.quota.tally import IN_TURN, UsageTally
from hawker.record.app import APPS, IPS, AppRecord, IpRecord
from hawker.record.machine import BY_APP, MACHINES, MachineKey, MachineRecord
from hawker.record.org import Amount
from hawker.record.volume import SNAPSHOTS, VOLUMES, VOLUMES_BY_APP, SnapshotRecord, VolumeKey, VolumeRecord
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.store.contract import Bucket, Reader, Tx
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

T = TypeVar("T")
NAMES, ORGS = ("a", "ab", "b", "c"), ("personal", "acme", "beta")
SUBJECTS = (*map(app_subject, NAMES), *map(org_subject, ORGS), "org/none", "app/none")
MIB = 1 << 20


def files_of(app_id: str) -> int:
    return len(app_id) * MIB + 1


COUNT = UsageCount(machine_disk_mib=256, logs_mib=8, files_bytes=files_of)


class Records(msgspec.Struct, frozen=True):
    """Of a real worker, to be written under other names."""

    machine: MachineRecord
    volume: VolumeRecord
    snapshot: SnapshotRecord


async def records(worker: SimWorker) -> Records:
    machine = worker.record((await worker.create(order={"skip_launch": True})).id)
    volume = await worker.volume("data", size_gb=1)
    await worker.at_rest()
    await worker.snapshot(volume.id)
    await worker.at_rest()
    ((_, snapshot),) = worker.store.scan(SNAPSHOTS)
    ((_, kept),) = worker.store.scan(VOLUMES)
    return Records(machine, kept, snapshot)


def app_record(name: str, org: str) -> AppRecord:
    return AppRecord(
        id=f"{name}-{org}", number=1, name=AppName(name), org=org, network="default", network_id=1, created_at=1.0
    )


def put_or_delete(tx: Tx, bucket: Bucket[T], key: str, value: T, size: int) -> None:
    if size:
        tx.put(bucket, key, value)
    else:
        tx.delete(bucket, key)


def written(made: Records, chance: Random) -> Callable[[Tx], None]:
    """One change of anything, as workers make it; a size of 0 is its end."""
    app, number, size = AppName(chance.choice(NAMES)), chance.randrange(3), chance.randrange(4)
    key, what = f"{app}-{number}", chance.choice(("app", "machine", "volume", "snapshot", "address"))

    def apply(tx: Tx) -> None:
        if what == "app":
            put_or_delete(tx, APPS, app, app_record(app, chance.choice(ORGS)), size)
        elif what == "machine":
            image = replace(made.machine.image, digest=f"sha256:{number:064}", size_bytes=(number + 1) * MIB - 5)
            config = config_of(guest={"cpus": size + 1, "memory_mb": 512})
            machine = replace(made.machine, id=MachineId(key), app=app, image=image, config=config)
            put_or_delete(tx, MACHINES, key, machine, size)
            put_or_delete(tx, BY_APP, f"{app}/{key}", MachineKey(id=MachineId(key)), size)
        elif what == "volume":
            put_or_delete(tx, VOLUMES, key, replace(made.volume, id=VolumeId(key), app=app, size_gb=size), size)
            put_or_delete(tx, VOLUMES_BY_APP, f"{app}/{key}", VolumeKey(id=VolumeId(key)), size)
        elif what == "snapshot":
            put_or_delete(tx, SNAPSHOTS, str(number), replace(made.snapshot, app=app, size=size * MIB // 3), size)
        else:
            address = IpRecord(
                id=key, ip=str(number), type="v6", region="mad", service_name="", shared=False, created_at=1.0
            )
            put_or_delete(tx, IPS, f"{app}/{number}", address, size)

    return apply


def counted(reader: Reader, subject: str) -> Amount:
    """By a look at every record there is."""
    kind, _, name = subject.partition("/")
    known = dict(reader.scan(APPS))
    apps = {name} if kind == "app" else {app for app, record in known.items() if record.org == name}
    machines = [each for _, each in reader.scan(MACHINES) if each.app in apps]
    volumes = [each for _, each in reader.scan(VOLUMES) if each.app in apps]
    snapshots = [each for _, each in reader.scan(SNAPSHOTS) if each.app in apps]
    images = {each.image.digest: each.image.size_bytes for each in machines}
    disk = [-(-sum(images.values()) // MIB), sum(-(-each.size // MIB) for each in snapshots)]
    disk += [sum(-(-files_of(record.id) // MIB) for app, record in known.items() if app in apps)]
    total = Amount(
        volumes=len(volumes),
        snapshots=len(snapshots),
        addresses=sum(key.partition("/")[0] in apps for key, _ in reader.scan(IPS)),
        disk_mb=sum(disk) + 1024 * sum(each.size_gb for each in volumes),
    )
    for each in machines:
        total = total.plus(COUNT.of_machine(each.config))
    return total


@pytest.mark.parametrize("seed", range(20))
async def test_a_tally_has_what_is_counted_anew(worker: SimWorker, seed: int) -> None:
    chance, made, store = Random(seed), await records(worker), MemoryStore()
    for _ in range(chance.randrange(40)):
        await store.write(written(made, chance))
    tally = UsageTally(store, COUNT)
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            await store.write(written(made, chance))
        tally.look()
        for subject in chance.sample(SUBJECTS, 4):
            expected = counted(store, subject)
            assert tally.of(subject) == expected
            kind, _, name = subject.partition("/")
            by_records = COUNT.of_app(store, AppName(name)) if kind == "app" else COUNT.of_org(store, name)
            assert by_records == expected
        assert set(tally.orgs) == {record.org for _, record in store.scan(APPS)}
        if chance.random() < 0.2:
            tally.turn()


async def test_uploaded_files_are_counted_in_turns() -> None:
    store, files = MemoryStore(), dict[str, int]()
    tally = UsageTally(store, UsageCount(256, 8, lambda app_id: files.get(app_id, 0)))
    names = [f"app{number}" for number in range(IN_TURN + 1)]
    for name in names:
        await store.write(lambda tx, name=name: tx.put(APPS, name, app_record(name, "acme")))  # type: ignore[misc]
    tally.look()
    assert tally.of("org/acme") == Amount()
    files |= {f"{name}-acme": MIB for name in names}
    tally.look()
    assert tally.of("org/acme") == Amount()
    tally.turn()
    assert tally.of("org/acme") == Amount(disk_mb=IN_TURN)
    tally.turn()
    assert tally.of("org/acme") == Amount(disk_mb=IN_TURN + 1)
