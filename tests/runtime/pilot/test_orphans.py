"""Pilots whose directory was taken away: found by the journal that they hold open, ended, and nobody else with them."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Timer

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.host.spawn import reap, spawn
from hawker.ids import MachineId
from hawker.runtime.pilot.journal_disk import journal_disk_file
from hawker.runtime.pilot.orphans import end_orphans, find_orphans, holder_of
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.proc import descendants, named
from tests.contract.drivers import Rig, process_rig
from tests.runtime.plain import marked, spec
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_stray")]
FOREVER = ("sleep", "1000")
DEADLINE_S = 60.0


async def pid_of(rig: Rig, machine_id: MachineId) -> int:
    pid = (await rig.driver.inspect(machine_id)).pid
    assert pid is not None
    return pid


async def test_only_a_pilot_without_its_directory_is_an_orphan(tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    async with process_rig(tmp_path) as rig:
        kept, lost = await rig.started(FOREVER), await rig.started(FOREVER)
        pid = await pid_of(rig, lost.machine_id)
        assert find_orphans(machines) == {}
        shutil.rmtree(machines / lost.machine_id / "run")
        assert find_orphans(machines) == {lost.machine_id: [pid]}
        assert find_orphans(tmp_path / "others") == {}
        with anyio.fail_after(DEADLINE_S):
            await end_orphans(machines, kept.machine_id)
            await end_orphans(machines, lost.machine_id)
            await end_orphans(machines, lost.machine_id)
        await eventually(lambda: find_orphans(machines) == {})
        assert (await rig.driver.inspect(kept.machine_id)).pid is not None
        await rig.destroy_all()


async def test_a_launch_after_it_leaves_one_instance(tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    async with process_rig(tmp_path) as rig:
        lost = await rig.started("exec sleep 1000")
        shutil.rmtree(machines / lost.machine_id / "run")
        again = await rig.spec("exec sleep 1000", again=lost)
        await rig.driver.start(again)
        assert find_orphans(machines) == {}
        assert (await rig.driver.inspect(lost.machine_id)).instance_id == again.instance_id
        await rig.destroy_all()


async def test_processes_below_it_have_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal is on its way for a while, on a busy host."""
    late: list[Timer] = []

    def kill_later(pid: int, signal: int) -> None:
        late.append(Timer(0.2, kill, (pid, signal)))
        late[-1].start()

    machines, kill = tmp_path / "machines", os.kill
    async with process_rig(tmp_path) as rig:
        lost = await rig.started("sleep 1000 & wait")
        pid = await pid_of(rig, lost.machine_id)
        await eventually(lambda: len(descendants(pid)) == 2)
        shutil.rmtree(machines / lost.machine_id / "run")
        monkeypatch.setattr(os, "kill", kill_later)
        with anyio.fail_after(DEADLINE_S):
            await end_orphans(machines, lost.machine_id)
        monkeypatch.undo()
        assert marked(lost) == []
        await rig.destroy_all()
    for timer in late:
        timer.join()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[tuple[RunDir, int]]:
    """A process that goes by a keeper's name, with the journal as its descriptor 3, as a keeper has it."""
    run = RunDir(tmp_path / "machines" / "0123456789abcd" / "run")
    run.path.mkdir(parents=True)
    program = shutil.copy("/bin/sleep", tmp_path / "keeper")
    with journal_disk_file(run, spec("unused")) as ledger:
        pid = spawn((str(program), "1000"), fds=(ledger,), session=True)
    yield run, pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


async def test_a_keeper_is_found_by_the_journal_that_it_holds(keeper: tuple[RunDir, int], tmp_path: Path) -> None:
    run, pid = keeper
    await eventually(lambda: pid in named("keeper"))
    assert await holder_of(run) == pid
    assert await holder_of(RunDir(tmp_path / "machines" / "another" / "run")) is None
    assert find_orphans(tmp_path / "machines") == {}


async def test_a_keeper_without_its_directory_is_an_orphan_and_can_be_ended(
    keeper: tuple[RunDir, int], tmp_path: Path
) -> None:
    run, pid = keeper
    await eventually(lambda: pid in named("keeper"))
    shutil.rmtree(run.path)
    assert find_orphans(tmp_path / "machines") == {run.machine_id: [pid]}
    with anyio.fail_after(DEADLINE_S):
        await end_orphans(tmp_path / "machines", run.machine_id)
        assert await reap(pid) == -signal.SIGKILL


FORGER = """
test "$4" = same || mount -t tmpfs none "$1" || exit 1
mkdir -p "$1/$2/run" && exec 4>"$1/$2/run/journal" && rm -r "$1/$2" && exec "$3" 1000
"""
ID = MachineId("0123456789abcd")


def forge(place: Path, name: str, files: str) -> int:
    """A process of another mount namespace by a pilot's name, whose descriptor reads like a journal that was removed:
    in a file system of its own, or as a VMM's, in the one that has the host's machines."""
    (place / "machines").mkdir(exist_ok=True)
    program = shutil.copy("/bin/sleep", place / "pilot")
    namespace = ("/usr/bin/unshare", "--mount") if files != "host" else ()
    script = ("/bin/sh", "-c", FORGER, "sh", str(place / "machines"), name, str(program))
    return spawn((*namespace, *script, "same" if files == "host" else files), session=True)


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "files"), [(ID, "own"), (ID, "same"), ("x\udcff", "own"), ("x\udcff", "host"), ("abc", "host")]
)
async def test_a_file_that_only_reads_like_a_journal_makes_no_orphan(tmp_path: Path, name: str, files: str) -> None:
    pid = forge(tmp_path, name, files)
    try:
        await eventually(lambda: pid in named("pilot"))
        link = os.readlink(f"/proc/{pid}/fd/4")
        assert link == f"{tmp_path}/machines/{name}/run/journal (deleted)"
        assert find_orphans(tmp_path / "machines") == {}
        await end_orphans(tmp_path / "machines", ID)
        assert pid in named("pilot")
    finally:
        os.kill(pid, signal.SIGKILL)
        await reap(pid)


async def test_an_orphan_is_found_where_all_directories_are_gone(keeper: tuple[RunDir, int], tmp_path: Path) -> None:
    run, pid = keeper
    await eventually(lambda: pid in named("keeper"))
    shutil.rmtree(tmp_path / "machines")
    assert find_orphans(tmp_path / "machines") == {run.machine_id: [pid]}


async def test_an_orphan_that_does_not_end_is_waited_for_with_a_deadline(
    keeper: tuple[RunDir, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is frozen, or hangs in the kernel."""
    run, pid = keeper
    await eventually(lambda: pid in named("keeper"))
    shutil.rmtree(run.path)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable, match=f"{run.machine_id}.* has not ended within"):
        await end_orphans(tmp_path / "machines", run.machine_id, within_s=0.05)
    assert find_orphans(tmp_path / "machines") == {run.machine_id: [pid]}
