"""Facts about the fake driver beyond the drivers' contract: faults, ends from outside, virtual time, a new daemon."""

import signal

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.errors import BadRequest, NotFound, Unavailable, WrongState
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import ExecSpec, NodeDriver, Phase
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeFault, FakeHost
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec

pytestmark = pytest.mark.anyio

MACHINE = MachineId("0123456789abcd")


class DaemonDied(BaseException):
    """Plays `kill -9`."""


def _spec(*commands: str, instance: str = "I1", machine_id: MachineId = MACHINE) -> InstanceSpec:
    processes = [
        ProcessSpec(argv=("sh", "-c", text), env={"NAME": "world"}) for text in commands or ("sleep infinity",)
    ]
    return InstanceSpec(
        machine_id=machine_id,
        instance_id=InstanceId(instance),
        hostname="host",
        processes=tuple(processes),
        limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=10),
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(clock: ManualClock) -> FakeHost:
    return FakeHost(clock)


@pytest.fixture
def driver(host: FakeHost) -> NodeDriver:
    return FakeDriver(host)


async def _launch(driver: NodeDriver, spec: InstanceSpec) -> None:
    await driver.prepare(spec)
    await driver.start(spec)


async def test_instance_runs_for_as_long_as_the_clock_says(driver: NodeDriver, clock: ManualClock) -> None:
    await _launch(driver, _spec("sleep 10; exit 3"))
    began = clock.now()
    clock.advance(9.0)
    assert (await driver.inspect(MACHINE)).phase is Phase.RUNNING
    clock.advance(5.0)
    found = await driver.inspect(MACHINE)
    assert found.exit is not None
    assert (found.exit.exit_code, found.exit.exited_at) == (3, began + 10.0)


async def test_waiting_lets_the_time_pass(driver: NodeDriver, clock: ManualClock) -> None:
    await _launch(driver, _spec("sleep 10"))
    assert (await driver.wait(MACHINE)).exited_at == pytest.approx(clock.now())


async def test_the_process_that_ends_first_ends_the_instance(driver: NodeDriver) -> None:
    await _launch(driver, _spec("sleep infinity", "sleep 5; exit 9"))
    ended = await driver.wait(MACHINE)
    assert (ended.process, ended.exit_code) == (1, 9)


async def test_end_from_outside_wakes_who_waits(driver: NodeDriver, host: FakeHost) -> None:
    await _launch(driver, _spec())
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert (await driver.wait(MACHINE)).oom_killed

        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        host.end(MACHINE, 137, signal=9, oom_killed=True)


async def test_a_new_driver_finds_what_runs_and_what_ended_meanwhile(driver: NodeDriver, host: FakeHost) -> None:
    other = MachineId("ffffffffffffff")
    await _launch(driver, _spec())
    await _launch(driver, _spec(machine_id=other))
    pid = (await driver.inspect(MACHINE)).pid
    host.end(other, 4)
    restarted = FakeDriver(host)
    assert (await restarted.recover(MACHINE)).pid == pid
    assert (await restarted.wait(other)).exit_code == 4
    assert await restarted.list() == [MACHINE, other]


async def test_a_fault_before_the_effect_leaves_nothing(driver: NodeDriver, host: FakeHost) -> None:
    host.script("start", FakeFault(Unavailable("no")))
    await driver.prepare(_spec())
    with pytest.raises(Unavailable):
        await driver.start(_spec())
    assert (await driver.inspect(MACHINE)).phase is Phase.PREPARED
    assert (await driver.start(_spec())).phase is Phase.RUNNING


async def test_a_death_after_the_effect_leaves_one_instance(driver: NodeDriver, host: FakeHost) -> None:
    host.script("start", FakeFault(DaemonDied(), after=True))
    await driver.prepare(_spec())
    with pytest.raises(DaemonDied):
        await driver.start(_spec())
    pid = (await driver.inspect(MACHINE)).pid
    restarted = FakeDriver(host)
    await restarted.prepare(_spec())
    assert (await restarted.start(_spec())).pid == pid


async def test_a_slow_call_takes_virtual_time(driver: NodeDriver, host: FakeHost, clock: ManualClock) -> None:
    host.script("prepare", FakeFault(delay_s=30.0))
    began = clock.now()
    await driver.prepare(_spec())
    await driver.prepare(_spec())
    assert clock.now() - began == 30.0


async def test_a_stubborn_machine_is_killed_after_the_timeout(
    driver: NodeDriver, host: FakeHost, clock: ManualClock
) -> None:
    host.stubborn.add(MACHINE)
    await _launch(driver, _spec())
    began = clock.now()
    ended = await driver.stop(MACHINE, "SIGTERM", 5.0)
    assert (ended.signal, ended.exit_code, clock.now() - began) == (9, 137, 5.0)
    assert host.signals(MACHINE) == [signal.SIGTERM, signal.SIGKILL]


async def test_stop_twice_tells_the_same_exit(driver: NodeDriver) -> None:
    await _launch(driver, _spec())
    first = await driver.stop(MACHINE, "SIGINT", 5.0)
    assert first.signal == signal.SIGINT
    assert await driver.stop(MACHINE, "SIGINT", 5.0) == first


async def test_a_command_that_does_not_exist_says_so(driver: NodeDriver) -> None:
    spec = _spec()
    missing = ProcessSpec(argv=("/nope",), env={})
    spec = msgspec.structs.replace(spec, processes=(missing,))
    await driver.prepare(spec)
    found = await driver.start(spec)
    assert found.phase is Phase.EXITED
    assert found.exit is not None
    assert "no such file" in found.exit.reason


async def test_a_running_machine_is_not_prepared_as_another(driver: NodeDriver) -> None:
    await _launch(driver, _spec())
    with pytest.raises(WrongState):
        await driver.prepare(_spec(instance="I2"))
    await driver.stop(MACHINE, "SIGKILL", 0)
    await driver.prepare(_spec(instance="I2"))
    assert (await driver.inspect(MACHINE)).phase is Phase.PREPARED


async def test_output_is_read_from_a_position_and_by_lines(driver: NodeDriver) -> None:
    await _launch(driver, _spec("echo one; echo two >&2; echo three $NAME; sleep infinity"))
    chunks = driver.output(MACHINE)
    assert [(chunk.stream, chunk.data) for chunk in chunks] == [(1, b"one\n"), (2, b"two\n"), (1, b"three world\n")]
    assert driver.output(MACHINE, after=chunks[0].position) == chunks[1:]
    assert driver.output(MACHINE, tail=2) == chunks[1:]


async def test_exec_echoes_its_input_and_ends_with_it(driver: NodeDriver) -> None:
    await _launch(driver, _spec())
    session = await driver.exec(MACHINE, ExecSpec(argv=("cat",)))
    await session.send(b"hello")
    await session.send_eof()
    assert [piece async for piece in session.output()] == [(1, b"hello")]
    assert (await session.wait()).exit_code == 0


async def test_exec_needs_a_command_and_a_running_machine(driver: NodeDriver) -> None:
    with pytest.raises(NotFound):
        await driver.exec(MACHINE, ExecSpec(argv=("true",)))
    await _launch(driver, _spec("exit 0"))
    with pytest.raises(BadRequest):
        await driver.exec(MACHINE, ExecSpec(argv=()))
    with pytest.raises(WrongState):
        await driver.exec(MACHINE, ExecSpec(argv=("true",)))


async def test_closing_a_session_ends_its_command(driver: NodeDriver) -> None:
    await _launch(driver, _spec())
    session = await driver.exec(MACHINE, ExecSpec(argv=("sleep", "infinity")))
    await session.close()
    assert (await session.wait()).signal == signal.SIGHUP


async def test_destroy_leaves_nothing_and_can_be_repeated(driver: NodeDriver) -> None:
    await _launch(driver, _spec())
    await driver.destroy(MACHINE)
    await driver.destroy(MACHINE)
    assert await driver.list() == []
    assert (await driver.recover(MACHINE)).phase is Phase.ABSENT
    with pytest.raises(NotFound):
        await driver.wait(MACHINE)
