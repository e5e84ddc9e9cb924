"""What every driver promises about commands beside the workload, and about workloads that only real ones can run."""

import anyio
import pytest

from hawker.errors import BadRequest, WrongState
from hawker.runtime.driver import ExecSession, ExecSpec, Phase
from hawker.runtime.spec import InstanceSpec
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

FOREVER = ("sleep", "1000")
MIB = 1 << 20


async def read(session: ExecSession, stream: int = 1) -> bytes:
    return b"".join([data async for came_from, data in session.output() if came_from == stream])


async def run(rig: Rig, command: str, **more: bool) -> ExecSession:
    spec = await rig.started(FOREVER)
    return await rig.driver.exec(spec.machine_id, ExecSpec(argv=("/bin/sh", "-c", command), tty=more.get("tty", False)))


async def runs(rig: Rig, spec: InstanceSpec, command: str) -> bool:
    return command in {process.command for process in await rig.driver.processes(spec.machine_id)}


async def gone(rig: Rig, spec: InstanceSpec, command: str) -> bool:
    return not await runs(rig, spec, command)


@pytest.mark.booted
async def test_a_command_gives_its_output_and_status(rig: Rig) -> None:
    session = await run(rig, "echo out; exit 3")
    assert await read(session) == b"out\n"
    exit = await session.wait()
    assert (exit.exit_code, exit.signal) == (3, 0)
    await session.close()


async def test_a_command_reads_what_it_is_sent_until_the_end(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    session = await rig.driver.exec(spec.machine_id, ExecSpec(argv=("cat",)))
    await session.send(b"to and fro\n")
    await session.send_eof()
    assert await read(session) == b"to and fro\n"
    assert (await session.wait()).exit_code == 0


async def test_waiting_alone_drops_the_output(rig: Rig) -> None:
    session = await run(rig, "echo unheard; exit 5")
    assert (await session.wait()).exit_code == 5


async def test_a_command_follows_the_workload_s_environment(rig: Rig) -> None:
    spec = await rig.spec(FOREVER, env={"COLOUR": "teal", "SIZE": "small"})
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    command = ExecSpec(argv=("/bin/sh", "-c", "echo $COLOUR $SIZE"), env={"SIZE": "large"})
    assert await read(await rig.driver.exec(spec.machine_id, command)) == b"teal large\n"


async def test_a_missing_command_ends_with_its_reason(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    session = await rig.driver.exec(spec.machine_id, ExecSpec(argv=("/nope",)))
    exit = await session.wait()
    assert (exit.exit_code, exit.reason) == (127, "exec /nope: no such file or directory")
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_no_command_is_refused(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    with pytest.raises(BadRequest):
        await rig.driver.exec(spec.machine_id, ExecSpec(argv=()))


async def test_a_command_in_what_has_ended_is_refused(rig: Rig) -> None:
    spec = await rig.started("exit 0")
    await rig.driver.wait(spec.machine_id)
    with pytest.raises(WrongState):
        await rig.driver.exec(spec.machine_id, ExecSpec(argv=("true",)))


async def test_a_session_ends_with_its_machine(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    session = await rig.driver.exec(spec.machine_id, ExecSpec(argv=("sleep", "999")))
    if rig.real:
        await eventually(lambda: runs(rig, spec, "sleep 999"))  # else it may be asked for when the machine has ended
        await rig.driver.stop(spec.machine_id, "SIGKILL", 5)
        assert (await session.wait()).signal == 9
    await session.close()


async def test_a_slow_reader_gets_every_byte(real: Rig) -> None:
    session = await run(real, f"head -c {5 * MIB} /dev/zero; exit 4")
    total = 0
    async for _, data in session.output():
        total += len(data)
        await anyio.sleep(0.0005)
    assert total == 5 * MIB
    assert (await session.wait()).exit_code == 4


async def test_large_input_comes_back_whole(real: Rig) -> None:
    spec = await real.started(FOREVER)
    session = await real.driver.exec(spec.machine_id, ExecSpec(argv=("cat",)))
    sent = bytes(range(256)) * (MIB // 64)

    async def feed() -> None:
        await session.send(sent)
        await session.send_eof()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        assert await read(session) == sent


async def test_a_flood_that_nobody_reads_holds_up_nobody(real: Rig) -> None:
    spec = await real.started(FOREVER)
    flood = await real.driver.exec(spec.machine_id, ExecSpec(argv=("/bin/sh", "-c", "yes flood")))
    other = await real.driver.exec(spec.machine_id, ExecSpec(argv=("/bin/sh", "-c", "echo through")))
    assert await read(other) == b"through\n"
    await flood.close()


async def test_stdout_and_stderr_are_apart(real: Rig) -> None:
    session = await run(real, "echo out; echo err >&2")
    got = {stream: data async for stream, data in session.output()}
    assert got == {1: b"out\n", 2: b"err\n"}


async def test_a_terminal_has_the_size_it_was_given(real: Rig) -> None:
    spec = await real.started(FOREVER)
    command = ExecSpec(argv=("/bin/sh", "-c", "stty size; read go; stty size"), tty=True, rows=30, cols=100)
    session = await real.driver.exec(spec.machine_id, command)
    seen = b""
    async for _, data in session.output():
        if seen == b"":
            await session.resize(50, 120)
            await session.send(b"go\n")
        seen += data
    assert b"30 100" in seen and b"50 120" in seen


async def test_ctrl_c_in_a_terminal_interrupts(real: Rig) -> None:
    spec = await real.started(FOREVER)
    session = await real.driver.exec(spec.machine_id, ExecSpec(argv=("sleep", "79"), tty=True))
    await eventually(lambda: runs(real, spec, "sleep 79"))
    await session.send(b"\x03")
    assert (await session.wait()).signal == 2


async def test_a_signal_reaches_the_command(real: Rig) -> None:
    session = await run(real, "exec sleep 1000")
    await session.signal(15)
    assert (await session.wait()).signal == 15


async def test_closing_a_session_ends_its_command(real: Rig) -> None:
    spec = await real.started(FOREVER)
    session = await real.driver.exec(spec.machine_id, ExecSpec(argv=("sleep", "77")))
    await eventually(lambda: runs(real, spec, "sleep 77"))
    await session.close()
    await eventually(lambda: gone(real, spec, "sleep 77"))


async def test_a_command_that_ignores_the_hangup_is_killed(real: Rig) -> None:
    spec = await real.started(FOREVER)
    session = await real.driver.exec(
        spec.machine_id, ExecSpec(argv=("/bin/sh", "-c", "trap '' HUP; echo on; sleep 78"))
    )
    async for _ in session.output():
        break
    await session.close()
    await eventually(lambda: gone(real, spec, "sleep 78"))


async def test_stop_escalates_when_the_workload_is_deaf(real: Rig) -> None:
    spec = await real.started("trap '' TERM; echo deaf; while true; do sleep 1; done")
    await eventually(lambda: real.driver.output(spec.machine_id))
    exit = await real.driver.stop(spec.machine_id, "SIGTERM", 0.3)
    assert (exit.exit_code, exit.signal) == (137, 9)


async def test_a_workload_may_end_in_its_own_way_when_stopped(real: Rig) -> None:
    spec = await real.started("trap 'echo bye; exit 12' INT; echo on; while true; do sleep 0.02; done")
    await eventually(lambda: real.driver.output(spec.machine_id))
    assert (await real.driver.stop(spec.machine_id, "SIGINT", 60)).exit_code == 12
    assert b"bye\n" in b"".join(chunk.data for chunk in real.driver.output(spec.machine_id))


async def test_an_unknown_user_is_an_exit_with_its_reason(real: Rig) -> None:
    spec = await real.spec(FOREVER, user="nobody2")
    await real.driver.prepare(spec)
    found = await real.driver.start(spec)
    assert found.exit is not None
    assert (found.exit.exit_code, found.exit.reason) == (126, "user nobody2 not found in /etc/passwd")


async def test_output_without_end_keeps_the_last_of_it(real: Rig) -> None:
    spec = await real.started(f"head -c {20 * MIB} /dev/zero; echo; echo the end; exit 0")
    await real.driver.wait(spec.machine_id)
    chunks = real.driver.output(spec.machine_id)
    assert chunks[0].position > 0
    assert sum(len(chunk.data) for chunk in chunks) <= 4 * MIB
    assert b"".join(chunk.data for chunk in real.driver.output(spec.machine_id, tail=1)) == b"the end\n"


async def test_a_workload_with_a_terminal_writes_to_the_output(real: Rig) -> None:
    spec = await real.started("test -t 1 && echo a terminal", tty=True)
    await real.driver.wait(spec.machine_id)
    assert b"".join(chunk.data for chunk in real.driver.output(spec.machine_id)) == b"a terminal\r\n"


async def test_no_descriptor_of_the_pilot_s_is_in_the_workload(real: Rig) -> None:
    spec = await real.started("ls /proc/self/fd; exit 0")
    await real.driver.wait(spec.machine_id)
    seen = b"".join(chunk.data for chunk in real.driver.output(spec.machine_id)).split()
    assert set(seen) <= {b"0", b"1", b"2", b"3"}  # 3 is the directory that ls reads
