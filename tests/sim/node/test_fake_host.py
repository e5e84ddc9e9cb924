import pytest

from hawker.errors import Unavailable
from hawker.ids import InstanceId, MachineId
from hawker.record.machine import Network
from hawker.runtime.fake_host import FakeFault
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.sim.node.fake_host import FakeImages, FakeNetworks, FakeRegistry, FakeRootfs, ScriptedFailure, SimHost

pytestmark = pytest.mark.anyio
M = MachineId("00000000000001")


def spec(instance: str = "I1", machine_id: MachineId = M) -> InstanceSpec:
    process = ProcessSpec(argv=("serve",), env={}, user="", cwd="/")
    return InstanceSpec(
        machine_id=machine_id,
        instance_id=InstanceId(instance),
        hostname=machine_id,
        processes=(process,),
        limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=64, pids=10),
    )


def launched(host: SimHost, *specs: InstanceSpec) -> None:
    for each in specs:
        host.launch(host.place(each))


async def test_a_launch_beside_a_running_instance_is_remembered() -> None:
    host = SimHost(LoopClock(), CrashPoints())
    launched(host, spec("I1"), spec("I2"))
    assert host.doubled == [M] and host.running() == {M: "I2"}


async def test_process_ids_are_used_again_but_not_those_that_strangers_took() -> None:
    host, other = SimHost(LoopClock(), CrashPoints()), MachineId("00000000000002")
    launched(host, spec())
    first = host.ever[M][0].pid
    host.deliver(host.ever[M][0], 9)
    launched(host, spec("I2"))
    assert host.ever[M][1].pid == first
    host.end(M, 0)
    launched(host, spec("I3", other))
    assert first in host.strangers and host.ever[other][0].pid != first


async def test_workload_ended_by_daemon_is_told_from_one_that_ends_by_itself() -> None:
    host = SimHost(LoopClock(), CrashPoints())
    launched(host, spec())
    host.end(M, 3)
    assert host.felled == []
    launched(host, spec("I2"))
    host.deliver(host.ever[M][1], 15)
    assert host.felled == [host.ever[M][1].exit]


async def test_a_reboot_takes_what_runs_and_leaves_what_had_ended() -> None:
    host, other = SimHost(LoopClock(), CrashPoints()), MachineId("00000000000002")
    launched(host, spec(), spec("I2", other))
    host.end(other, 3)
    host.reboot()
    assert host.machines() == [other] and host.lost == {M: 1}
    launched(host, spec())
    assert host.launched["I1"] == 1, "a run that begins again launches it again"  # type: ignore[index]


async def test_every_call_is_two_edges_and_death_comes_before_or_after_its_effect() -> None:
    crash_points = CrashPoints()
    host = SimHost(LoopClock(), crash_points)
    for burns_at, after in ((1, False), (4, True)):
        crash_points.burns_at = burns_at
        fault = host.fault("start")
        assert isinstance(fault.error, Death) and fault.after is after


async def test_scripted_failures_can_be_forgiven() -> None:
    host = SimHost(LoopClock(), CrashPoints())
    host.script("start", FakeFault(error=OSError()))
    host.forgive()
    assert host.fault("start").error is None


async def test_a_fixture_fails_once_before_or_after_its_effect() -> None:
    wires, network = FakeNetworks(CrashPoints()), Network(private_ip="fdaa::2", network_id=1)
    wires.troubles += [ScriptedFailure("ensure", False), ScriptedFailure("delete", True)]
    with pytest.raises(OSError, match="ensure failed"):
        await wires.ensure(M, network)
    assert wires.plugged == {}
    await wires.ensure(M, network)
    with pytest.raises(OSError, match="delete failed"):
        await wires.delete(M)
    assert wires.plugged == {}


async def test_a_directory_outlives_its_mount() -> None:
    shelves = FakeRootfs(CrashPoints())
    await shelves.mount(M, InstanceId("I1"), "sha256:0")  # type: ignore[arg-type]
    await shelves.unmount(M)
    assert await shelves.list() == [M] and shelves.mounted == {}
    await shelves.remove(M)
    assert await shelves.list() == []


async def test_an_image_is_here_once_it_is_built_and_outlives_the_daemon() -> None:
    registry, clock = FakeRegistry(), LoopClock()
    registry.pull_s = 30
    images, began = FakeImages(registry, clock), clock.monotonic()
    await images.open()
    resolved = await images.resolve("hawker/hello")
    assert images.find(resolved.digest) is None
    await images.fetch(resolved)
    image = await images.build(resolved)
    assert clock.monotonic() - began == 30
    images.mark_used(resolved.digest)
    assert FakeImages(registry, clock).find(resolved.digest) == image


async def test_pulls_fail_as_often_as_asked() -> None:
    registry = FakeRegistry()
    registry.fails = 1
    images = FakeImages(registry, LoopClock())
    resolved = await images.resolve("hawker/hello")
    with pytest.raises(Unavailable):
        await images.fetch(resolved)
    await images.fetch(resolved)
