"""What the fake's guests add to the driver contract, which tests/contract holds the fake to."""

import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.errors import NotFound, SnapshotLost, Unavailable, WrongState
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Phase
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec, VolumeDisk
from hawker.sim.node.kit import GUEST_FEATURES

pytestmark = pytest.mark.anyio
MACHINE = MachineId("00000000000001")
SPEC = InstanceSpec(
    machine_id=MACHINE,
    instance_id=InstanceId("I1"),
    hostname="m",
    processes=(ProcessSpec(argv=("serve",), env={}),),
    limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=256, pids=100),
    volumes=(VolumeDisk(name="data", file="/disk", target="/data"),),
)


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(ManualClock())


@pytest.fixture
async def driver(host: FakeHost) -> FakeDriver:
    driver = FakeDriver(host, GUEST_FEATURES)
    await driver.start(SPEC)
    return driver


async def test_a_snapshot_leaves_no_process_and_is_gone_once_it_was_used(driver: FakeDriver, host: FakeHost) -> None:
    before = await driver.inspect(MACHINE)
    await driver.suspend(MACHINE)
    seen = await driver.inspect(MACHINE)
    assert (seen.phase, seen.pid, host.memories) == (Phase.SUSPENDED, None, {MACHINE})
    await driver.resume(MACHINE)
    seen = await driver.inspect(MACHINE)
    assert seen.phase is Phase.RUNNING and seen.pid not in (None, before.pid) and host.memories == set()
    assert seen.started_at == before.started_at


async def test_one_that_is_spoilt_ends_the_instance_with_a_fault(driver: FakeDriver, host: FakeHost) -> None:
    await driver.suspend(MACHINE)
    host.spoilt.add(MACHINE)
    with pytest.raises(SnapshotLost, match="checksum"):
        await driver.resume(MACHINE)
    exit = await driver.wait(MACHINE)
    assert "checksum" in exit.fault and host.memories == set()
    with pytest.raises(WrongState):
        await driver.resume(MACHINE)


@pytest.mark.parametrize("way", ["stop", "destroy", "another instance"])
async def test_whatever_ends_it_takes_the_snapshot_along(driver: FakeDriver, host: FakeHost, way: str) -> None:
    await driver.suspend(MACHINE)
    if way == "destroy":
        await driver.destroy(MACHINE)
    else:
        assert (await driver.stop(MACHINE, "SIGINT", 1.0)).signal == 9, "it cannot hear another one"
        if way == "another instance":
            await driver.start(msgspec.structs.replace(SPEC, instance_id=InstanceId("I2")))
    assert host.memories == set()


async def test_volumes_are_asked_for_by_name_and_only_of_what_runs(driver: FakeDriver, host: FakeHost) -> None:
    await driver.grow_volume(MACHINE, "data", 1 << 30)
    usage = await driver.volume_usage(MACHINE, "data")
    assert usage.blocks * usage.block_size == 1 << 30
    await driver.trim_volume(MACHINE, "data", 0, 1 << 20)
    await driver.trim_volume(MACHINE, "", 0, 1 << 10)
    assert host.trimmed == {(MACHINE, "data"): 1 << 20, (MACHINE, ""): 1 << 10}
    with pytest.raises(NotFound, match="no volume other"):
        await driver.volume_usage(MACHINE, "other")
    await driver.suspend(MACHINE)
    with pytest.raises(WrongState):
        await driver.grow_volume(MACHINE, "data", 2 << 30)


async def test_a_volume_is_still_until_its_guest_ends(driver: FakeDriver, host: FakeHost) -> None:
    async with driver.freeze_volume(MACHINE, "data", 60):
        assert host.still == {(MACHINE, "data")}
    assert host.still == set()
    with pytest.raises(Unavailable, match="let go"):
        async with driver.freeze_volume(MACHINE, "data", 60):
            host.end(MACHINE, 137, fault="kernel panic")
