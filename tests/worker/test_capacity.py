from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig
from hawker.errors import NoRoom
from hawker.gpu import Gpu
from hawker.host.cgroup import CgroupLayout
from hawker.host.facts import DiskSpace, Facts
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.place import Place
from hawker.record.machine import MachineRecord
from hawker.runtime.fake_host import FakeFault
from hawker.settings import Settings
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import MemoryWorld
from hawker.worker.capacity import PromisedDisk, Room, at_rest, kept_layer, room_for, usual_layer_mib
from tests.worker.invariants import check_at_rest
from tests.worker.machines import machine

FACTS = Facts(
    cpus=8, memory_mib=10_000, kernel="6.1", cgroups=next(iter(CgroupLayout)), root=False, tools={}, boot_id="boot"
)


FREE_MIB = 5_000


def room_of(settings: Settings) -> Capacity:
    disk = PromisedDisk(Place(settings.data_dir), lambda _: DiskSpace(total_bytes=1 << 40, free_bytes=FREE_MIB << 20))
    return Room(settings, FACTS, disk)()


def test_the_host_keeps_some_memory_for_itself(tmp_path: Path) -> None:
    room = room_of(Settings(data_dir=tmp_path, free_disk_floor_mib=1))
    assert (room.cpus, room.memory_mib, room.disk_mib) == (8, 9500, FREE_MIB - 1)


def test_settings_say_what_is_sold(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, cpus=2, memory_mib=100, disk_mib=7, shared_cpu_ratio=3.0)
    room = room_of(settings)
    assert (room.cpus, room.memory_mib, room.disk_mib, room.shared_ratio) == (2, 100, 7, 3.0)


def test_gpus_are_those_that_the_settings_name(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, gpu_devices=("a10=0000:65:00.0",))
    assert room_of(settings).gpus == (Gpu(kind="a10", address="0000:65:00.0"),)
    assert room_of(Settings(data_dir=tmp_path)).gpus == ()


@pytest.mark.parametrize(
    ("free_mib", "promised_mib", "sold_mib", "layer_mib"),
    [
        (1 << 20, 0, None, 8192),  # a terabyte
        (100 * 1024 + 512, 0, None, 3200),
        (50 * 1024 + 512, 50 * 1024, None, 3200),  # the same one, half of it written by machines
        (1 << 20, 1 << 30, None, 8192),
        (8 * 1024, 0, None, 256),
        (0, 0, None, 256),
        (1 << 20, 0, 64 * 1024, 2048),  # the operator sells less
    ],
)
def test_root_filesystems_are_as_large_as_the_disk_allows(
    tmp_path: Path, free_mib: int, promised_mib: int, sold_mib: int | None, layer_mib: int
) -> None:
    disk = DiskSpace(total_bytes=1 << 40, free_bytes=free_mib << 20)
    settings = Settings(data_dir=tmp_path, disk_mib=sold_mib)
    assert usual_layer_mib(settings, disk, promised_mib) == layer_mib


@pytest.mark.parametrize("disk_mib", [None, 1000])
def test_a_disk_that_is_full_has_no_room_whatever_the_settings_say(tmp_path: Path, disk_mib: int | None) -> None:
    settings = Settings(data_dir=tmp_path, disk_mib=disk_mib, free_disk_floor_mib=1 << 40)
    assert room_of(settings).disk_mib == 0


pytestmark = pytest.mark.anyio
HELD = Resources(shared_cpus=1, memory_mib=256, disk_mib=300)


def record_of(**config: Any) -> MachineRecord:
    parsed = msgspec.convert({"image": "a", **config}, MachineConfig)
    return machine(config=parsed, holds=HELD)


def test_a_machine_that_is_off_holds_nothing() -> None:
    assert at_rest(record_of()) == Resources() == at_rest(record_of(rootfs={"persist": "never"}))


@pytest.mark.parametrize("persist", ["restart", "always"])
def test_a_layer_that_is_kept_holds_its_disk(persist: str) -> None:
    assert at_rest(record_of(rootfs={"persist": persist})) == Resources(disk_mib=300)


def test_a_layer_is_kept_as_long_as_the_config_says() -> None:
    restart, always = record_of(rootfs={"persist": "restart"}), record_of(rootfs={"persist": "always"})
    assert kept_layer(record_of()) is None and kept_layer(None) is None
    assert kept_layer(restart) == f"kept-{restart.version}" and kept_layer(always) == "kept"


@pytest.mark.parametrize(("given", "name"), [("never", None), (0, None), (1, None), (3, "kept"), ("always", "kept")])
def test_the_deprecated_field_says_the_same(given: str | int, name: str | None) -> None:
    assert kept_layer(record_of(guest={"persist_rootfs": given})) == name


def test_the_newer_field_wins() -> None:
    both = record_of(guest={"persist_rootfs": "never"}, rootfs={"persist": "always"})
    assert kept_layer(both) == "kept"


# Through the flows: whose first instance made the layer that is there.


def layer_of(stall: MemoryWorld, machine_id: str) -> str | None:
    return next((first for key, (_, first) in stall.rootfs.layers.items() if key == machine_id), None)


async def started_again(worker: SimWorker, machine_id: str) -> None:
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)


async def test_a_layer_goes_with_its_instance_unless_it_is_kept(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    first = layer_of(stall, machine_id)
    await started_again(worker, machine_id)
    assert layer_of(stall, machine_id) not in (None, first)


@pytest.mark.parametrize("persist", ["restart", "always"])
async def test_a_kept_layer_outlives_stops_restarts_and_failures(
    worker: SimWorker, stall: MemoryWorld, persist: str
) -> None:
    machine_id = await worker.started(rootfs={"persist": persist}, restart={"policy": "always"})
    first = layer_of(stall, machine_id)
    await started_again(worker, machine_id)
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    stall.host.end(worker.record(machine_id).id, 3)
    await stall.clock.sleep(60)
    await worker.reaches(machine_id, State.STARTED)
    assert layer_of(stall, machine_id) == first is not None
    check_at_rest(stall)


@pytest.mark.parametrize(("persist", "kept"), [("restart", False), ("always", True)])
async def test_only_always_outlives_an_update(worker: SimWorker, stall: MemoryWorld, persist: str, kept: bool) -> None:
    machine_id = await worker.started(rootfs={"persist": persist})
    first = layer_of(stall, machine_id)
    await worker.update(machine_id, rootfs={"persist": persist}, env={"A": "2"})
    await worker.reaches(machine_id, State.STARTED)
    assert (layer_of(stall, machine_id) == first) is kept
    await worker.update(machine_id, env={"A": "3"})
    await worker.reaches(machine_id, State.STARTED)
    assert layer_of(stall, machine_id) != first, "the new version does not keep it"
    check_at_rest(stall)


async def test_a_machine_that_keeps_its_layer_holds_the_disk_until_it_is_destroyed(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(rootfs={"persist": "always"})
        await worker.stop(machine_id)
        record = await worker.reaches(machine_id, State.STOPPED)
        assert record.holds == Resources(disk_mib=stall.settings.layer_mib)
        check_at_rest(stall)
    stall.crash()
    async with stall.open() as worker:
        assert layer_of(stall, machine_id) is not None and await worker.reconciler.find() == []
        await worker.destroy(machine_id)
        await worker.reaches(machine_id, State.DESTROYED)
        assert layer_of(stall, machine_id) is None
        assert worker.parts.deps.table.used(worker.store) == Resources()
        check_at_rest(stall)


async def test_a_start_that_fails_does_not_cost_the_layer(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(rootfs={"persist": "always"})
    first = layer_of(stall, machine_id)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    stall.host.script("start", *[FakeFault(error=OSError("no"))] * 3)
    await worker.start(machine_id)
    record = await worker.reaches(machine_id, State.FAILED)
    assert layer_of(stall, machine_id) == first and record.holds.disk_mib > 0
    check_at_rest(stall)


ROOM = Capacity(cpus=8, memory_mib=1024, disk_mib=100_000)


@pytest.mark.parametrize(("guests", "expected"), [(False, 0), (True, 100)])
async def test_a_node_sells_a_guests_memory_and_what_its_vmm_needs(tmp_path: Path, guests: bool, expected: int) -> None:
    async with MemoryWorld(tmp_path, guests=guests).open() as worker:
        deps = worker.parts.deps
        assert (
            room_for(deps.settings, deps.driver.features.overhead_mib, config_of(guest={"memory_mb": 300})).memory_mib
            == 300 + expected
        )


async def test_admission_counts_it(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path, guests=True, room=ROOM)
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(guest={"memory_mb": 512})
        assert worker.record(machine_id).holds.memory_mib == 612
        with pytest.raises(NoRoom, match="short of 38 MiB of memory"):
            await worker.create(guest={"memory_mb": 350})
        check_at_rest(stall)
