"""Facts about keepers, with small programs in the place of crun and a VMM. They need no root, and no jail."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker import guest
from hawker.errors import Unavailable
from hawker.runtime import proc
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.keeper import KeeperLaunch
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

FOREVER = "exec sleep 1000"
UID = 0x7000_1234


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RunDir]:
    made = RunDir(tmp_path / "machine/run")
    made.path.mkdir(parents=True)
    yield made
    await keeper.abandon(made)


def launcher(run: RunDir, vmm: str, *, first: str = "", fds: tuple[int, ...] = ()) -> KeeperLaunch:
    """A program that starts a VMM, a shell that does `vmm`, and ends, as `crun run --detach` does."""
    pid_file = run.path / "pid-of-vmm"
    script = f"{first}\n/bin/sh -c '{vmm}' &\necho $! > {pid_file}"
    return KeeperLaunch(argv=("/bin/sh", "-c", script), fds=fds, pid_file=pid_file, uid=os.getuid())


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def score_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def may_protect() -> bool:
    """Whether this host lets root lower a process's score at all."""
    asked = subprocess.run(["/bin/sh", "-c", "echo -1000 >/proc/self/oom_score_adj"], capture_output=True, check=False)
    return asked.returncode == 0


def parent_of(pid: int) -> int:
    return next(entry.parent for entry in proc.entries() if entry.pid == pid)


def open_and_close(pipe: Path) -> None:
    with pipe.open("w"):
        pass


async def ended(run: RunDir) -> None:
    await eventually(lambda: keeper.read_end(run) is not None)


async def play(run: RunDir, vmm: str) -> None:
    """A VMM that does so once the shell that started it has ended, from its begin to its end: the end of an earlier one
    may be heard by that shell, and not by the keeper."""
    os.mkfifo(run.path / "gate")
    await keeper.launch(run, launcher(run, f"read line < {run.path}/gate; {vmm}"))
    open_and_close(run.path / "gate")
    await ended(run)


async def test_the_vmm_is_the_keepers_child_and_the_program_is_gone(run: RunDir) -> None:
    pid = await keeper.launch(run, launcher(run, FOREVER))
    record = keeper.read_record(run)
    assert (record.keeper, record.status) == (pid, None)
    assert record.vmm is not None and parent_of(record.vmm) == pid
    assert [entry.pid for entry in proc.descendants(pid)] == [record.vmm]
    assert parent_of(pid) != os.getpid(), "nobody here has to reap it"


@pytest.mark.parametrize("how, status", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9)])
async def test_how_a_vmm_ends_is_written_down(run: RunDir, how: str, status: int) -> None:
    await play(run, how)
    end = keeper.read_end(run)
    assert end is not None and end.status == status
    assert abs(end.at - run.path.stat().st_mtime) < 60.0


async def test_the_output_of_a_vmm_is_kept_while_it_runs_and_afterwards(run: RunDir) -> None:
    await keeper.launch(run, launcher(run, "echo to stdout; echo to stderr >&2; exec sleep 1000"))
    await eventually(lambda: keeper.read_console(run) == b"to stdout\nto stderr\n")
    vmm = keeper.read_record(run).vmm
    assert vmm is not None
    os.kill(vmm, signal.SIGKILL)
    await ended(run)
    end = keeper.read_end(run)
    assert end is not None and end.console == b"to stdout\nto stderr\n"


async def test_of_many_words_the_last_are_kept(run: RunDir) -> None:
    """300 kB, in lines of eight bytes."""
    await play(run, "seq 1000000 1037499")
    console = keeper.read_console(run)
    assert console.endswith(b"1037498\n1037499\n")
    assert 48 << 10 < len(console) <= 64 << 10
    numbers = [int(line) for line in console.split(b"\n")[1:-1]]
    assert numbers == list(range(numbers[0], 1037500))


async def test_a_program_that_fails_is_told_with_its_words(run: RunDir) -> None:
    with pytest.raises(Unavailable, match=r"^no such bundle$"):
        await keeper.launch(run, launcher(run, FOREVER, first="echo no such bundle >&2; exit 1"))
    with pytest.raises(Unavailable, match=r"^/bin/sh ended with wait status 768$"):
        await keeper.launch(run, launcher(run, FOREVER, first="exit 3"))
    with pytest.raises(Unavailable, match="keeper: /nonexistent: No such file or directory"):
        await keeper.launch(run, KeeperLaunch(argv=("/nonexistent",), fds=(), pid_file=run.path / "none", uid=0))
    assert keeper.read_end(run) is None


async def test_a_program_that_hangs_is_ended_with_all_it_started(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is counted from where it hangs: a busy host may need longer than that to begin it."""
    read = keeper._read

    def hangs() -> bool:
        begun = keeper.read_record(run).keeper
        return begun is not None and len(proc.descendants(begun)) == 2

    async def read_once_it_hangs(answer: int) -> str | None:
        await eventually(hangs)
        return await read(answer)

    monkeypatch.setattr(keeper, "_read", read_once_it_hangs)
    monkeypatch.setattr(keeper, "_LAUNCH_TIMEOUT_S", 0.5)
    with pytest.raises(Unavailable, match="did not end within"):
        await keeper.launch(run, launcher(run, FOREVER, first=f"sleep 1000 & {FOREVER}"))
    pid = keeper.read_record(run).keeper
    assert pid is not None and not proc.has_open(pid, keeper.record_path(run))
    assert proc.descendants(pid) == []


def daemon(run: RunDir) -> subprocess.Popen[bytes]:
    """Another process that launches a VMM whose launcher waits at a gate, with the lock that a driver takes."""
    script = f"""
        import anyio, fcntl, sys
        from tests.runtime.vmm.test_keeper import RunDir, Path, keeper, launcher
        run = RunDir(Path({str(run.path)!r}))
        with run.journal.open("wb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            gate, fds = f"read line < {{run.path}}/gate", (journal.fileno(),)
            anyio.run(keeper.launch, run, launcher(run, f"{{gate}}; exit 5", first=gate, fds=fds))
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=Path(__file__).parents[3])


async def test_a_daemon_that_dies_in_a_launch_loses_neither_vmm_nor_its_end(run: RunDir) -> None:
    """The next one finds the lock held, and in the record all that it needs."""
    os.mkfifo(run.path / "gate")
    launching = daemon(run)
    await eventually(lambda: keeper.read_record(run).keeper is not None)
    launching.kill()
    launching.wait()
    assert run.alive()
    open_and_close(run.path / "gate")
    await eventually(lambda: keeper.read_record(run).vmm is not None)
    assert run.alive()
    open_and_close(run.path / "gate")
    await ended(run)
    end = keeper.read_end(run)
    assert end is not None and end.status == 5


async def test_without_a_pid_the_end_of_the_last_child_counts(run: RunDir) -> None:
    """A pid file that a VMM could write may hold anything: a pid that is no child's, or none."""
    os.mkfifo(run.path / "gate")
    for text in ("1", "", "nonsense"):
        script = f"/bin/sh -c 'read line; exit 5' < {run.path}/gate & echo {text} > {run.path}/wrong"
        argv = ("/bin/sh", "-c", script)
        await keeper.launch(run, KeeperLaunch(argv=argv, fds=(), pid_file=run.path / "wrong", uid=os.getuid()))
        assert keeper.read_end(run) is None
        open_and_close(run.path / "gate")
        await ended(run)
        end = keeper.read_end(run)
        assert end is not None and end.status == 5


async def test_a_pid_file_that_is_a_link_or_a_pipe_is_not_read(run: RunDir) -> None:
    os.mkfifo(run.path / "pipe")
    (run.path / "link").symlink_to("/proc/self/stat")
    for name in ("pipe", "link"):
        wanted = KeeperLaunch(argv=("/bin/sh", "-c", "/bin/true &"), fds=(), pid_file=run.path / name, uid=os.getuid())
        await keeper.launch(run, wanted)
        assert keeper.read_record(run).vmm is None
        await ended(run)


async def test_the_lock_is_held_until_the_vmm_has_ended(run: RunDir) -> None:
    """Also when the VMM lets go of it, and when whoever launched it is gone."""
    with run.journal.open("wb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        await keeper.launch(run, launcher(run, "exec sleep 1000 3>&-", fds=(journal.fileno(),)))
    assert run.alive()
    vmm = keeper.read_record(run).vmm
    assert vmm is not None
    os.kill(vmm, signal.SIGKILL)
    await eventually(lambda: not run.alive())
    assert keeper.read_end(run) is not None, "it is written down before the lock is let go"


async def test_descriptors_are_passed_on_and_kept_from_the_keeper(run: RunDir) -> None:
    """Whoever listens for the VMM must be refused once it is dead; only the lock stays with the keeper."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    lock = os.open(run.journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        vmm = "echo passed >&4; exec 4>&-; exec sleep 1000"
        pid = await keeper.launch(run, launcher(run, vmm, fds=(lock, writing)))
        os.close(writing)
        with anyio.fail_after(60):
            await anyio.wait_readable(reading)
        assert os.read(reading, 100) == b"passed\n"
        assert os.read(reading, 100) == b"", "nobody else has the other end"
        kept = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        files = {str(run.journal), str(keeper.record_path(run)), str(keeper.console_path(run)), os.devnull}
        assert {name for name in kept if not name.startswith("pipe:")} == files
    finally:
        os.close(reading)
        os.close(lock)


async def test_signals_of_a_terminal_or_a_service_manager_do_not_end_it(run: RunDir) -> None:
    pid = await keeper.launch(run, launcher(run, FOREVER))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        os.kill(pid, number)
    vmm = keeper.read_record(run).vmm
    assert vmm is not None and parent_of(vmm) == pid
    assert os.getsid(pid) == pid != os.getsid(vmm)
    os.kill(vmm, signal.SIGKILL)
    await ended(run)


async def test_a_killed_keeper_has_nothing_to_say(run: RunDir) -> None:
    pid = await keeper.launch(run, launcher(run, FOREVER))
    vmm = keeper.read_record(run).vmm
    assert vmm is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: parent_of(vmm) != pid)
    os.kill(vmm, signal.SIGKILL)
    await keeper.bury(run)
    assert keeper.read_end(run) is None


async def test_a_line_that_was_cut_is_not_read(run: RunDir) -> None:
    keeper.record_path(run).write_bytes(b"keeper 12\nvmm 34\nended 0 17" + bytes(480))
    assert keeper.read_record(run) == keeper.KeeperRecord(keeper=12, vmm=34)
    assert keeper.read_end(run) is None
    keeper.record_path(run).write_bytes(bytes(512))
    assert keeper.read_record(run) == keeper.KeeperRecord()


def test_nothing_is_told_of_a_machine_without_a_keeper(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert keeper.read_record(run) == keeper.KeeperRecord()
    assert keeper.read_end(run) is None
    assert keeper.read_console(run) == b""


async def test_another_process_is_never_taken_for_a_keeper(run: RunDir) -> None:
    """An id that was used again, and be it for the keeper of another machine."""
    keeper.record_path(run).write_bytes(f"keeper {os.getpid()}\n".encode())
    await keeper.abandon(run)
    await keeper.bury(run)


async def test_a_keeper_is_small(run: RunDir) -> None:
    pid = await keeper.launch(run, launcher(run, FOREVER))
    assert int(status_of(pid)["VmRSS"].split()[0]) < 1024, "KiB"


@pytest.mark.root
async def test_a_keeper_gives_up_root(run: RunDir) -> None:
    wanted = launcher(run, FOREVER)
    pid = await keeper.launch(run, KeeperLaunch(argv=wanted.argv, fds=(), pid_file=wanted.pid_file, uid=UID))
    status = status_of(pid)
    assert status["Uid"].split() == status["Gid"].split() == [str(UID)] * 4
    assert (int(status["CapEff"], 16), status["Groups"], status["NoNewPrivs"]) == (0, "", "1")


@pytest.mark.root
async def test_a_keeper_is_spared_when_memory_is_short_and_its_vmm_is_not(run: RunDir) -> None:
    if not may_protect():
        pytest.skip("this host lets nobody lower a process's score")
    pid = await keeper.launch(run, launcher(run, FOREVER))
    vmm = keeper.read_record(run).vmm
    assert vmm is not None
    assert (score_of(pid), score_of(vmm)) == (-1000, score_of(os.getpid()))


def test_wrong_use_is_told() -> None:
    program = str(guest.keeper_path())
    for argv in ([], ["--pass=0"], ["--pass=0", "--"], ["--pass=-1", "--", "true"], ["--unknown", "--", "true"]):
        done = subprocess.run([program, *argv], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 125
        assert "usage: keeper" in done.stderr
