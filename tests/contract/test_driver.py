"""What every driver promises (`hawker.runtime.driver`): one suite over the real ones and the fake."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.errors import BadRequest, NotFound, NotServed, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Driver, Phase
from hawker.runtime.spec import FileSpec
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

FOREVER = ("sleep", "1000")
LARGE = b"a line of a large file\n" * 10_000


async def text(driver: Driver, machine_id: MachineId) -> str:
    return b"".join(chunk.data for chunk in driver.output(machine_id)).decode()


# --- start


async def test_a_prepared_instance_is_not_running(rig: Rig) -> None:
    spec = await rig.spec(FOREVER)
    await rig.driver.prepare(spec)
    found = await rig.driver.inspect(spec.machine_id)
    assert (found.phase, found.instance_id, found.pid) == (Phase.PREPARED, spec.instance_id, None)


@pytest.mark.booted
async def test_start_returns_with_the_workload_running(rig: Rig) -> None:
    spec = await rig.spec(FOREVER)
    await rig.driver.prepare(spec)
    found = await rig.driver.start(spec)
    assert (found.phase, found.instance_id) == (Phase.RUNNING, spec.instance_id)
    assert found.pid is not None and found.started_at is not None


async def test_starting_twice_is_one_instance(rig: Rig) -> None:
    spec = await rig.started("echo once; sleep 1000")
    first = await rig.driver.inspect(spec.machine_id)
    again = await rig.renew().start(spec)
    assert (again.pid, again.started_at) == (first.pid, first.started_at)
    await eventually(partial(text, rig.driver, spec.machine_id))
    await rig.driver.stop(spec.machine_id, "SIGKILL", 5)
    assert await text(rig.driver, spec.machine_id) == "once\n"


async def test_a_new_daemon_starts_what_an_old_one_prepared(rig: Rig) -> None:
    spec = await rig.spec(FOREVER)
    await rig.driver.prepare(spec)
    assert (await rig.renew().start(spec)).phase is Phase.RUNNING


async def test_starting_an_exited_instance_does_not_run_it_again(rig: Rig) -> None:
    spec = await rig.started("echo once; exit 3")
    await rig.driver.wait(spec.machine_id)
    found = await rig.renew().start(spec)
    assert found.phase is Phase.EXITED and found.exit is not None and found.exit.exit_code == 3
    assert await text(rig.driver, spec.machine_id) == "once\n"


async def test_another_instance_waits_for_the_first_to_end(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    other = await rig.spec(FOREVER, again=spec)
    with pytest.raises(WrongState):
        await rig.driver.prepare(other)
    assert (await rig.driver.inspect(spec.machine_id)).instance_id == spec.instance_id


async def test_a_missing_command_is_an_exit_with_its_reason(rig: Rig) -> None:
    spec = await rig.spec(("/nope",))
    await rig.driver.prepare(spec)
    found = await rig.driver.start(spec)
    assert found.phase is Phase.EXITED and found.exit is not None
    assert found.exit.exit_code == 127 and found.exit.reason == "exec /nope: no such file or directory"
    assert (await rig.renew().wait(spec.machine_id)).reason == found.exit.reason


async def test_the_environment_is_the_spec_s(rig: Rig) -> None:
    spec = await rig.spec("echo $COLOUR; sleep 0", env={"COLOUR": "teal"})
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    await rig.driver.wait(spec.machine_id)
    assert await text(rig.driver, spec.machine_id) == "teal\n"


async def test_a_start_cut_short_anywhere_is_completed_by_the_next_daemon(rig: Rig) -> None:
    for step in range(4) if rig.boot_s else range(12):
        spec = await rig.spec("echo once; sleep 1000")
        with anyio.move_on_after(step * (rig.boot_s / 4 or 0.0005)):
            await rig.driver.start(spec) if rig.real else await rig.driver.prepare(spec)
        daemon = rig.renew()
        await daemon.prepare(spec)
        assert (await daemon.start(spec)).phase is Phase.RUNNING
        await eventually(partial(text, daemon, spec.machine_id))
        await daemon.stop(spec.machine_id, "SIGKILL", 5)
        assert await text(daemon, spec.machine_id) == "once\n"


# --- exit


async def test_an_exit_code_is_kept_for_the_next_daemon(rig: Rig) -> None:
    spec = await rig.started("exit 7")
    seen = await rig.driver.wait(spec.machine_id)
    assert (seen.exit_code, seen.signal, seen.reason) == (7, 0, "")
    assert await rig.renew().wait(spec.machine_id) == seen


async def test_an_exit_that_nobody_watched_is_found(rig: Rig) -> None:
    spec = await rig.started("sleep 0.1; exit 9")

    async def exited() -> bool:
        return (await rig.renew().recover(spec.machine_id)).phase is Phase.EXITED

    await eventually(exited)
    found = await rig.renew().recover(spec.machine_id)
    assert found.exit is not None and found.exit.exit_code == 9


async def test_waiting_ends_with_the_workload(rig: Rig) -> None:
    spec = await rig.started("sleep 0.05; exit 4")
    assert (await rig.driver.wait(spec.machine_id)).exit_code == 4


async def test_all_who_wait_hear_of_the_exit(rig: Rig) -> None:
    spec = await rig.started("sleep 0.05; exit 4")
    codes: list[int] = []

    async def wait(driver: Driver) -> None:
        codes.append((await driver.wait(spec.machine_id)).exit_code)

    async with anyio.create_task_group() as tasks:
        for driver in (rig.driver, rig.driver, rig.renew()):
            tasks.start_soon(wait, driver)
    assert codes == [4, 4, 4]


async def test_the_first_process_to_end_ends_the_machine(rig: Rig) -> None:
    spec = await rig.started(FOREVER, "sleep 0.05; exit 5")
    exit = await rig.driver.wait(spec.machine_id)
    assert (exit.exit_code, exit.process) == (5, 1)


async def test_a_pilot_killed_from_outside_is_a_killed_machine(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    await rig.kill_pilot(spec.machine_id)
    exit = await rig.renew().wait(spec.machine_id)
    assert (exit.exit_code, exit.signal) == (137, 9)
    assert (await rig.renew().inspect(spec.machine_id)).exit == exit


async def test_nothing_to_wait_for_is_not_found(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.driver.wait(MachineId("ffffffffffffff"))
    with pytest.raises(NotFound):
        await rig.driver.stop(MachineId("ffffffffffffff"), "SIGTERM", 1)


# --- stop and signal


async def test_stop_ends_the_workload_with_the_signal(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    exit = await rig.driver.stop(spec.machine_id, "SIGTERM", 60)
    assert (exit.exit_code, exit.signal) == (143, 15)


async def test_stopping_what_has_exited_tells_how(rig: Rig) -> None:
    spec = await rig.started("exit 6")
    await rig.driver.wait(spec.machine_id)
    assert (await rig.renew().stop(spec.machine_id, "SIGTERM", 60)).exit_code == 6


async def test_stop_takes_a_signal_by_any_of_its_names(rig: Rig) -> None:
    for name in ("TERM",) if rig.boot_s else ("SIGTERM", "TERM", "15", "sigterm"):
        spec = await rig.started(FOREVER)
        assert (await rig.driver.stop(spec.machine_id, name, 60)).signal == 15


async def test_stop_refuses_what_is_no_signal(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    with pytest.raises(BadRequest, match="SIGNOPE"):
        await rig.driver.stop(spec.machine_id, "SIGNOPE", 1)


async def test_a_signal_reaches_the_workload(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    await rig.driver.signal(spec.machine_id, 15)
    assert (await rig.driver.wait(spec.machine_id)).signal == 15


async def test_a_signal_to_what_has_ended_is_refused(rig: Rig) -> None:
    spec = await rig.started("exit 0")
    await rig.driver.wait(spec.machine_id)
    with pytest.raises(WrongState):
        await rig.driver.signal(spec.machine_id, 15)


# --- output


async def test_output_carries_its_stream_and_process(rig: Rig) -> None:
    spec = await rig.started("echo out; echo err >&2; exit 0", FOREVER)
    await rig.driver.wait(spec.machine_id)
    found = {(chunk.stream, chunk.process, chunk.data) for chunk in rig.driver.output(spec.machine_id)}
    assert found == {(1, 0, b"out\n"), (2, 0, b"err\n")}


async def test_output_resumes_after_a_position(rig: Rig) -> None:
    spec = await rig.started("echo one; sleep 0.05; echo two; exit 0")
    await rig.driver.wait(spec.machine_id)
    chunks = rig.driver.output(spec.machine_id)
    first = chunks[0].position
    assert rig.renew().output(spec.machine_id, after=first) == [chunk for chunk in chunks if chunk.position > first]
    assert rig.driver.output(spec.machine_id, after=chunks[-1].position) == []


async def test_the_tail_is_the_last_lines(rig: Rig) -> None:
    spec = await rig.started("echo one; echo two; echo three; exit 0")
    await rig.driver.wait(spec.machine_id)
    tail = b"".join(chunk.data for chunk in rig.driver.output(spec.machine_id, tail=2))
    assert tail == b"two\nthree\n"


async def test_output_is_readable_after_the_exit_until_destroy(rig: Rig) -> None:
    spec = await rig.started("echo last words; exit 1")
    await rig.driver.wait(spec.machine_id)
    assert await text(rig.renew(), spec.machine_id) == "last words\n"
    await rig.driver.destroy(spec.machine_id)
    assert rig.driver.output(spec.machine_id) == []


# --- files


async def test_files_are_written_or_refused(rig: Rig) -> None:
    spec = await rig.spec("cat /deep/down/file; exit 0", files=(FileSpec(path="/deep/down/file", content=b"words\n"),))
    if not rig.driver.features.rootfs:
        with pytest.raises(NotServed, match="files"):
            await rig.driver.prepare(spec)
        return
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    await rig.driver.wait(spec.machine_id)
    assert await text(rig.driver, spec.machine_id) == "words\n"


def large(place: Path, path: str, mode: int = 0o644) -> FileSpec:
    """A file of the host that does not go with the spec."""
    source = place / "large"
    source.write_bytes(LARGE)
    return FileSpec(path=path, source=str(source), mode=mode)


@pytest.mark.booted
async def test_files_of_the_host_are_there_before_the_first_process(rig: Rig, tmp_path: Path) -> None:
    if not rig.driver.features.rootfs:
        pytest.skip("its machines have no root filesystem; that it says so is a test above")
    file = large(tmp_path, "/deep/down/file", 0o755)
    spec = await rig.spec("cat /deep/down/file; exit 0", files=(FileSpec(path="/small", content=b"words\n"), file))
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    assert (await rig.driver.wait(spec.machine_id)).exit_code == 0
    assert await text(rig.driver, spec.machine_id) == LARGE.decode()


async def test_files_of_the_host_come_once_for_an_instance(rig: Rig, tmp_path: Path) -> None:
    if not rig.driver.features.rootfs:
        pytest.skip("its machines have no root filesystem")
    file = large(tmp_path, "/file")
    spec = await rig.spec(FOREVER, files=(file,))
    await rig.driver.prepare(spec)
    first = await rig.driver.start(spec)
    (tmp_path / "large").unlink()  # nobody looks at it again
    again = await rig.renew().start(spec)
    assert (first.phase, again.phase, again.pid) == (Phase.RUNNING, Phase.RUNNING, first.pid)
    assert [state.run for state in await rig.driver.process_states(spec.machine_id)] == [1]


async def test_a_start_that_was_cut_short_amid_its_files_is_finished_by_the_next_daemon(
    rig: Rig, tmp_path: Path
) -> None:
    """A machine monitor that is killed amid a copy leaves the beginning of it, under a hidden name of its own."""
    if not rig.driver.features.rootfs or not rig.real:
        pytest.skip("needs a root filesystem, and a copy that takes a while")
    file = large(tmp_path, "/deep/file")
    with (tmp_path / "large").open("ab") as more:
        more.truncate(8 << 20)
    spec = await rig.spec("ls /deep; tail -c 4 /deep/file | cat -A", files=(file,))
    await rig.driver.prepare(spec)
    with anyio.move_on_after(0.2):
        await rig.driver.start(spec)
    await rig.renew().start(spec)
    assert (await rig.driver.wait(spec.machine_id)).exit_code == 0
    assert (await text(rig.driver, spec.machine_id)) == "file\n^@^@^@^@"


async def test_a_file_that_cannot_be_written_ends_the_instance_before_its_command(rig: Rig, tmp_path: Path) -> None:
    if not rig.driver.features.rootfs or not rig.real:
        pytest.skip("needs a root filesystem")
    spec = await rig.spec("echo ran", files=(large(tmp_path, "/bin"),))
    await rig.driver.prepare(spec)
    seen = await rig.driver.start(spec)
    assert seen.phase is Phase.EXITED and seen.exit is not None
    assert "/bin: Is a directory" in seen.exit.reason and seen.exit.exit_code == 126
    assert await text(rig.driver, spec.machine_id) == ""


# --- prepare again, destroy, list


async def test_preparing_twice_is_no_change(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    await rig.renew().prepare(spec)
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_preparing_the_next_instance_drops_the_exited_one(rig: Rig) -> None:
    spec = await rig.started("echo before; exit 1")
    await rig.driver.wait(spec.machine_id)
    following = await rig.spec("echo after; exit 2", again=spec)
    await rig.driver.prepare(following)
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.PREPARED
    await rig.driver.start(following)
    assert (await rig.driver.wait(spec.machine_id)).exit_code == 2
    assert await text(rig.driver, spec.machine_id) == "after\n"


@pytest.mark.parametrize("state", ["absent", "prepared", "running", "exited", "killed"])
async def test_destroy_leaves_nothing_whatever_it_finds(rig: Rig, state: str) -> None:
    spec = await rig.spec("exit 1" if state == "exited" else FOREVER)
    if state != "absent":
        await rig.driver.prepare(spec)
    if state in ("running", "exited", "killed"):
        await rig.driver.start(spec)
    if state == "exited":
        await rig.driver.wait(spec.machine_id)
    if state == "killed":
        await rig.kill_pilot(spec.machine_id)
    for _ in range(2):
        await rig.renew().destroy(spec.machine_id)
        assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.ABSENT
        assert await rig.driver.list() == []


async def test_the_list_is_of_all_that_is_there(rig: Rig) -> None:
    specs = [await rig.started(FOREVER), await rig.started("exit 0"), await rig.spec(FOREVER)]
    await rig.driver.prepare(specs[2])
    assert sorted(await rig.renew().list()) == sorted(spec.machine_id for spec in specs)


# --- what it uses


async def test_stats_and_processes_are_of_the_machine(rig: Rig) -> None:
    spec = await rig.started(FOREVER)

    async def is_counted() -> bool:
        """A process that has just begun has no memory yet, and another command."""
        stats = await rig.driver.stats(spec.machine_id)
        commands = {process.command for process in await rig.driver.processes(spec.machine_id)}
        return stats.memory_bytes > 0 and stats.pids >= 1 and "sleep 1000" in commands

    await eventually(is_counted)
