"""What the shared half of the drivers makes of daemons, pilots and files that a crash left behind."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import SnapshotLost, Unavailable, WrongState
from hawker.runtime.driver import Phase
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.channel import UnixSocketChannel
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.exit import replay_journal
from hawker.runtime.pilot.frames import FrameKind, FrameParser
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.process import ProcessTechnology, process_driver
from tests.runtime.pilot.guests import Guest, Program
from tests.runtime.pilot.liar import HELLO
from tests.runtime.plain import MACHINE, marked, spec
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
PEERS_MAX = 32  # of guest/peer.h
GREET = f"""import socket, time
c = socket.socket(fileno=3).accept()[0]
c.recv({len(messages.hello())}, socket.MSG_WAITALL)
"""


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[PilotDriver]:
    made = process_driver(tmp_path / "machines", SystemClock())
    with anyio.fail_after(120):
        yield made
    await made.destroy(MACHINE)


async def test_a_pilot_that_does_not_answer_is_killed_by_stop(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("sleep 1000")
    hasty = PilotDriver(ProcessTechnology(), tmp_path / "machines", SystemClock(), stop_grace_s=0.1)
    pid = (await driver.start(running)).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert (await hasty.stop(MACHINE, "SIGTERM", 0.1)).signal == 9
    assert marked(running) == []


class Crowded(UnixSocketChannel):
    """Clients have all the room of its pilot. Who asks has no way in; then there is one and the pilot hangs up; then
    they go."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: list[Connection] = []
        self._asked = 0

    async def crowd(self, run: RunDir) -> None:
        self._clients = [super(Crowded, self).connect(run) for _ in range(PEERS_MAX)]
        for client in self._clients:
            await client.hello()

    def connect(self, run: RunDir, *, kept: bool = False) -> Connection:
        self._asked += bool(self._clients)
        if self._asked == 1:
            raise Unavailable("all ways into the machine are taken")
        while self._asked == 3 and self._clients:
            self._clients.pop().close()
        return super().connect(run, kept=kept)


async def test_a_stop_is_asked_for_again_until_the_pilot_has_room_for_it(tmp_path: Path) -> None:
    technology = ProcessTechnology()
    technology.channel = channel = Crowded()
    driver = PilotDriver(technology, tmp_path, SystemClock(), stop_grace_s=0.1)
    with anyio.fail_after(120):
        await driver.start(spec("trap 'exit 7' TERM; echo up; while true; do sleep 0.05; done"))
        await eventually(lambda: bool(driver.output(MACHINE)))
        await channel.crowd(RunDir(tmp_path / MACHINE / "run"))
        assert (await driver.stop(MACHINE, "SIGTERM", 20.0)).exit_code == 7
        await driver.destroy(MACHINE)


async def test_a_daemon_that_died_before_it_noted_the_pilot_is_no_loss(driver: PilotDriver, tmp_path: Path) -> None:
    pid = (await driver.start(spec("sleep 1000"))).pid
    (tmp_path / "machines" / MACHINE / "run" / "pid").unlink()
    assert (await driver.inspect(MACHINE)).pid == pid


async def test_a_process_id_used_again_fools_nobody(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("exit 3")
    await driver.start(running)
    await driver.wait(MACHINE)
    run = tmp_path / "machines" / MACHINE / "run"
    (run / "exit").unlink()
    (run / "pid").write_text(str(os.getpid()))  # the worst case: it is ours now
    later = process_driver(tmp_path / "machines", SystemClock())
    assert (await later.inspect(MACHINE)).phase is Phase.EXITED
    await later.destroy(MACHINE)  # and we are still here


async def test_an_unseen_kill_has_the_time_at_which_it_was_noticed(driver: PilotDriver, tmp_path: Path) -> None:
    pid = (await driver.start(spec("exec sleep 1000"))).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    clock = ManualClock(start=5_000_000_000.0)
    await eventually(lambda: not marked(spec("")))  # the kernel ends the workload's first process with its pilot
    noticed = await process_driver(tmp_path / "machines", clock).wait(MACHINE)
    clock.advance(1000)
    again = await process_driver(tmp_path / "machines", clock).wait(MACHINE)
    assert noticed.exited_at == again.exited_at == 5_000_000_000.0


async def test_one_killed_before_its_command_was_known_to_run_says_so(driver: PilotDriver, tmp_path: Path) -> None:
    pid = (await driver.start(spec("exec sleep 1000"))).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not marked(spec("")))
    journal = tmp_path / "machines" / MACHINE / "run" / "journal"
    whole = journal.read_bytes()
    sizes = [
        size
        for size in range(len(whole))
        if (story := replay_journal(whole[:size])).instance_id and story.ready_at is None
    ]
    journal.write_bytes(whole[: sizes[0]])
    seen = await process_driver(tmp_path / "machines", SystemClock()).inspect(MACHINE)
    assert seen.phase is Phase.EXITED and seen.started_at is None
    assert seen.exit is not None and seen.exit.exit_code == 137
    assert seen.exit.reason == "it was killed before its command was known to run"


async def test_a_path_longer_than_a_socket_s_address_is_no_hindrance(tmp_path: Path) -> None:
    deep = process_driver(tmp_path / ("d" * 150), SystemClock())
    assert (await deep.start(spec("sleep 1000", instance="deep"))).phase is Phase.RUNNING
    await deep.destroy(MACHINE)


async def test_a_pilot_file_that_a_crash_cut_short_is_made_anew(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("echo once; sleep 1000")
    await driver.prepare(running)
    run = tmp_path / "machines" / MACHINE / "run"
    (run / "pilot.sock").touch()
    (run / "journal").write_bytes(b"torn")
    assert (await driver.start(running)).phase is Phase.RUNNING


async def test_memory_of_the_host_s_daemon_is_not_needed(driver: PilotDriver, tmp_path: Path) -> None:
    running = spec("sleep 0.1; exit 5")
    await driver.start(running)
    other = process_driver(tmp_path / "machines", SystemClock())
    assert (await other.wait(MACHINE)).exit_code == 5


@pytest.mark.parametrize("lost", ["run", "run/journal"])
async def test_a_pilot_that_lost_its_files_is_ended_before_the_next_is_begun(
    driver: PilotDriver, tmp_path: Path, lost: str
) -> None:
    first, second = spec("exec sleep 1000", instance="first"), spec("exec sleep 1000", instance="second")
    await driver.start(first)
    path = tmp_path / "machines" / MACHINE / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    await driver.start(second)
    assert marked(first) == []
    await eventually(lambda: marked(second) != [])  # the shell may be on its way to becoming `sleep`


# --- a machine with a kernel of its own


STAY = "; time.sleep(1000)"
SILENCE = "no word from the guest within 2 s; its kernel's last words: Loading"
END, NOISE = HELLO + frames.encode(FrameKind.EXIT), frames.encode(FrameKind.LIST_END)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        pytest.param("import time" + STAY, SILENCE, id="silence"),
        pytest.param(GREET + f"c.sendall({HELLO!r})" + STAY, SILENCE, id="never ready"),
        pytest.param(GREET + "c.sendall(bytes(100))" + STAY, "broke off", id="corruption"),
        pytest.param(GREET + "c.close()" + STAY, "broke off", id="hanging up"),
        pytest.param(GREET + f"c.sendall({END!r})" + STAY, "broke off", id="an end that is none"),
        pytest.param(GREET + f"c.sendall({HELLO!r}); c.send({NOISE!r} * 2000)" + STAY, "broke off", id="a flood"),
    ],
)
async def test_a_guest_that_does_not_start_has_an_exit_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, fault: str
) -> None:
    monkeypatch.setattr("hawker.runtime.pilot.driver.BOOT_TIMEOUT_S", 2.0 if fault is SILENCE else 60.0)
    monkeypatch.setattr("hawker.runtime.pilot.driver._LAST_WORDS_S", 0.2)
    driver = PilotDriver(Program(program), tmp_path, SystemClock())
    with anyio.fail_after(120):
        seen = await driver.start(spec("unused"))
        assert seen.phase is Phase.EXITED and seen.exit is not None and fault in seen.exit.fault
        assert await driver.running() == frozenset()
        assert await driver.start(spec("unused")) == seen  # and it is not launched again
        await driver.destroy(MACHINE)


async def test_a_vmm_that_was_killed_before_its_guest_was_there_may_be_launched_again(tmp_path: Path) -> None:
    driver = PilotDriver(Program("import os; os.kill(os.getpid(), 9)"), tmp_path, SystemClock())
    with anyio.fail_after(120):
        with pytest.raises(Unavailable, match="before its guest was there"):
            await driver.start(spec("unused"))
        assert (await driver.inspect(MACHINE)).phase is Phase.PREPARED
        later = PilotDriver(Guest(), tmp_path, SystemClock())
        assert (await later.start(spec("sleep 1000"))).phase is Phase.RUNNING
        await later.destroy(MACHINE)


@pytest.mark.parametrize(("again", "launches"), [(0, 1), (1, 2), (9, 4)])
async def test_a_guest_that_wants_it_is_started_again_at_once_and_not_for_ever(
    tmp_path: Path, again: int, launches: int
) -> None:
    guest = Program("", again=again)
    driver = PilotDriver(guest, tmp_path, SystemClock())
    with anyio.fail_after(120):
        with pytest.raises(Unavailable, match="before its guest was there: Loading"):
            await driver.start(spec("unused"))
        assert guest.launches == launches
        await driver.destroy(MACHINE)


async def test_a_guest_is_told_its_spec_once_it_is_there(tmp_path: Path) -> None:
    """Its clock is set by it: what waited in a socket would be late."""
    program = GREET + f"c.sendall({HELLO!r}); time.sleep(0.3); said = c.recv(1 << 16); open(5, 'wb').write(said)"
    heard = tmp_path / "machines" / MACHINE / "run" / "output.0"
    driver = PilotDriver(Program(program), tmp_path / "machines", SystemClock())
    with anyio.fail_after(120):
        with pytest.raises(Unavailable):
            await driver.start(spec("unused"))
        (part,) = FrameParser().feed(heard.read_bytes())
        assert part.kind == FrameKind.SPEC
        await driver.destroy(MACHINE)


async def test_a_guest_goes_on_where_it_was_held(tmp_path: Path) -> None:
    driver = PilotDriver(Guest(), tmp_path, SystemClock())
    with anyio.fail_after(120):
        await driver.start(spec("sleep 1000"))
        await driver.suspend(MACHINE)
        with pytest.raises(WrongState, match="suspended"):
            await driver.start(spec("sleep 1000"))
        for call in (driver.processes(MACHINE), driver.signal(MACHINE, 15), driver.process_states(MACHINE)):
            with pytest.raises(WrongState, match="suspended"):
                await call
        with pytest.raises(WrongState, match="still has a running instance"):
            await driver.prepare(spec("sleep 1000", instance="another"))
        await driver.resume(MACHINE)
        assert await driver.suspended() == frozenset() and await driver.running() == {MACHINE}
        await driver.destroy(MACHINE)


async def test_a_snapshot_that_cannot_be_used_is_the_end(tmp_path: Path) -> None:
    driver = PilotDriver(Guest(whole=False), tmp_path, SystemClock())
    with anyio.fail_after(120):
        await driver.start(spec("sleep 1000"))
        await driver.suspend(MACHINE)
        with pytest.raises(SnapshotLost, match="torn"):
            await driver.resume(MACHINE)
        seen = await driver.inspect(MACHINE)
        assert seen.phase is Phase.EXITED and seen.exit is not None and "torn" in seen.exit.fault
        assert await driver.suspended() == await driver.running() == frozenset()
        with pytest.raises(WrongState):
            await driver.resume(MACHINE)
        await driver.destroy(MACHINE)
