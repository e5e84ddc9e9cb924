"""Ends that no pilot has recorded: of keepers before their VMMs, of guests in a snapshot, of what cannot go on."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import SystemClock
from hawker.errors import NotFound
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Phase, ProcessPhase, ProcessState
from hawker.runtime.pilot import frames
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.exit import BootStages, JournalState, read_journal, replay_journal, sanitized
from hawker.runtime.pilot.processes import recorded_states
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.guests import Guest, Program
from tests.runtime.pilot.records import STAMP, began, ended, ending, journal_record
from tests.runtime.plain import MACHINE, marked, spec
from tests.waiting import eventually

RECORDS = [
    journal_record(1, STAMP + frames.number(42, 4)),
    journal_record(2, STAMP + frames.string("instance")),
    journal_record(3, STAMP),
    journal_record(4, ending(3)),
    journal_record(4, ending(143)),
    journal_record(5, ending(3)),
]
WHOLE = b"".join(RECORDS)


def test_a_whole_journal_tells_the_story() -> None:
    story = replay_journal(WHOLE)
    assert (story.pilot_pid, story.instance_id, story.started_at, story.ready_at) == (42, "instance", 1.0, 1.0)
    assert story.first_exit is not None and story.first_exit.exit_code == 3
    assert story.final_exit is not None and story.final_exit.exited_at == 9.0


def test_no_journal_is_an_empty_story(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "journal") == JournalState()


@given(st.integers(0, len(WHOLE)))
def test_a_torn_tail_leaves_what_came_before(cut: int) -> None:
    complete = 0
    while len(b"".join(RECORDS[: complete + 1])) <= cut and complete < len(RECORDS):
        complete += 1
    assert replay_journal(WHOLE[:cut]) == replay_journal(b"".join(RECORDS[:complete]))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_never_believed(at: int, flip: int) -> None:
    hurt = bytearray(WHOLE)
    hurt[at] ^= flip
    stories = [replay_journal(b"".join(RECORDS[:count])) for count in range(len(RECORDS) + 1)]
    assert replay_journal(bytes(hurt)) in stories


@given(st.binary(max_size=500))
def test_foreign_bytes_tell_nothing(data: bytes) -> None:
    assert replay_journal(data) == JournalState()


def test_a_record_of_a_newer_pilot_is_passed_over() -> None:
    assert replay_journal(journal_record(99, b"news") + WHOLE) == replay_journal(WHOLE)


def test_a_record_that_is_whole_but_too_short_ends_the_story() -> None:
    assert replay_journal(RECORDS[0] + journal_record(2, b"") + journal_record(5, ending(1))) == replay_journal(
        RECORDS[0]
    )


def test_runs_are_told_by_the_latest() -> None:
    story = replay_journal(began(1) + ended(1, 3) + began(2) + began(1, process=0))
    state = story.runs[1]
    assert (state.state, state.run, state.pid, state.started_at) == (ProcessPhase.RUNNING, 2, 52, 1.0)
    assert state.last_exit is not None and state.last_exit.exit_code == 3
    assert story.runs[0].run == 1 and story.first_exit is None


def test_an_ended_run_says_how_and_whether_memory_was_to_blame() -> None:
    for more, oom_killed in ((b"", False), (b"\0", False), (b"\1", True), (b"\1more", True)):
        state = replay_journal(began(1) + ended(1, 137, more=more)).runs[1]
        assert (state.state, state.pid) == (ProcessPhase.EXITED, None)
        assert state.exit is not None and (state.exit.exit_code, state.exit.oom_killed) == (137, oom_killed)


def test_older_runs_behind_newer_ones_are_passed_over() -> None:
    """What a rewrite leaves behind that was cut short."""
    true = began(900) + ended(900, 1)
    assert replay_journal(true + began(3) + ended(3, 0) + ended(899, 0)).runs == replay_journal(true).runs


@given(st.integers(1, 40), st.integers(0, 3))
def test_a_rewrite_is_true_wherever_it_is_cut_short(runs: int, lost: int) -> None:
    """The latest runs go over the older ones, and then the rest is cut off: if it comes to that."""
    older = b"".join(began(run) + ended(run, run % 5) for run in range(1, runs + 1))
    latest = began(runs) + ended(runs, runs % 5) + began(1, process=0)
    written = latest + older[len(latest) : len(older) - lost]
    assert replay_journal(WHOLE + written).runs == replay_journal(WHOLE + latest).runs


def test_each_end_is_known_where_the_first_is_the_machine_s() -> None:
    story = replay_journal(WHOLE)
    assert {index: exit.exit_code for index, exit in story.exits.items()} == {0: 143}
    assert story.runs == {}


def test_the_stages_of_a_guest_s_start_are_told_in_seconds() -> None:
    stages = b"".join(frames.number(at * 500_000_000, 8) for at in range(1, 9))
    told = replay_journal(journal_record(8, stages) + WHOLE)
    assert told.stages == BootStages(
        pilot_s=0.5, devices_s=1.0, streams_s=1.5, spec_s=2.0, root_s=2.5, network_s=3.0, executed_s=3.5, own_s=4.0
    )
    assert replay_journal(journal_record(8, stages[:-1]) + WHOLE) == JournalState()
    assert replay_journal(WHOLE).stages is None


# --- written by a guest, which is hostile

NUMBERS = st.sampled_from([0, 1, 64, 65, 255, 256, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
HOSTILE_ENDINGS = st.builds(
    lambda at, code, signal, process, reason: ending(
        code % 2**32, at_ns=at, signal=signal % 2**32, process=process % 256, reason=reason
    ),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.binary(max_size=40),
)
HOSTILE = st.lists(
    st.one_of(
        st.builds(journal_record, st.integers(0, 255), st.binary(max_size=80)),
        st.builds(journal_record, st.sampled_from([4, 5]), HOSTILE_ENDINGS),
        st.builds(lambda run, e: journal_record(7, frames.number(run % 2**32, 4) + e), NUMBERS, HOSTILE_ENDINGS),
        st.builds(lambda run, process: began(run % (2**32 - 51), process % 256), NUMBERS, NUMBERS),
    ),
    max_size=12,
)


@given(HOSTILE)
def test_no_record_is_told_that_cannot_be(records: list[bytes]) -> None:
    story = replay_journal(b"".join(records))
    last = [state.last_exit for state in story.runs.values()]
    for exit in (story.first_exit, story.final_exit, *story.exits.values(), *last):
        assert exit is None or (exit.exit_code < 256 and exit.signal <= 64 and exit.reason.isprintable())
    assert len(recorded_states(spec("unused"), story, story.final_exit)) == 1


@pytest.mark.parametrize(
    "payload", [ending(256), ending(1, signal=65), ending(2**32 - 1), ending(0)[:-1], ending(0)[:-1] + b"x"]
)
def test_an_ending_that_cannot_be_ends_the_story(payload: bytes) -> None:
    assert replay_journal(RECORDS[0] + journal_record(5, payload) + RECORDS[1]) == replay_journal(RECORDS[0])


def test_a_reason_is_short_and_obeyed_by_no_terminal() -> None:
    for reason in (b"\x1b[2J" * 3000, b"\xff\xfe" * 3000, "\u202e".encode() * 3000):
        exit = replay_journal(journal_record(5, ending(1, reason=reason))).final_exit
        assert exit is not None and len(exit.reason) <= 8 * frames.WORDS_MAX and exit.reason.isprintable()


def test_no_more_is_read_than_a_journal_has(tmp_path: Path) -> None:
    """What comes after it in a ledger is no journal's."""
    filler = journal_record(99, bytes(60_000)) + journal_record(99, bytes((64 << 10) - 60_016))
    (tmp_path / "journal").write_bytes(filler + WHOLE)
    assert len(filler) == 64 << 10 and read_journal(tmp_path / "journal") == JournalState()


NOW = 1_000.0
TIMES = st.floats(0, 2e10)
EXITS = st.builds(Exit, exit_code=st.integers(0, 255), exited_at=TIMES, process=st.integers(0, 255))
STATES = st.builds(
    ProcessState, state=st.just(ProcessPhase.EXITED), run=st.just(1), started_at=TIMES, last_exit=EXITS | st.none()
)
STORIES = st.builds(
    JournalState,
    started_at=TIMES | st.none(),
    ready_at=TIMES | st.none(),
    first_exit=EXITS | st.none(),
    final_exit=EXITS | st.none(),
    exits=st.dictionaries(st.integers(0, 255), EXITS, max_size=4),
    runs=st.dictionaries(st.integers(0, 255), STATES, max_size=4),
)


@given(STORIES, st.integers(1, 32))
def test_nothing_believed_is_still_to_come_or_of_a_process_that_is_not_there(
    story: JournalState, processes: int
) -> None:
    sober = sanitized(story, processes, NOW)
    times = [sober.started_at, sober.ready_at]
    for exit in (sober.first_exit, sober.final_exit):
        assert exit is None or exit.process < processes
        times.append(None if exit is None else exit.exited_at)
    for state in sober.runs.values():
        times += [state.started_at, None if state.last_exit is None else state.last_exit.exited_at]
    assert all(at is None or at <= NOW for at in times)
    assert all(index < processes for index in (*sober.exits, *sober.runs))


def test_a_journal_that_can_be_is_left_as_it_is() -> None:
    exit = Exit(exit_code=3, exited_at=7.0, process=1, reason="why")
    state = ProcessState(state=ProcessPhase.EXITED, run=2, started_at=5.0, last_exit=exit)
    stages = BootStages(pilot_s=1, devices_s=2, streams_s=3, spec_s=4, root_s=5, network_s=6, executed_s=7, own_s=1)
    story = JournalState(started_at=1.0, ready_at=2.0, final_exit=exit, exits={1: exit}, runs={1: state}, stages=stages)
    assert sanitized(story, 2, NOW) == story


pytestmark = pytest.mark.anyio


class PatientClock(SystemClock):
    """Counts how often somebody waits a while."""

    def __init__(self) -> None:
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        await super().sleep(seconds)


@pytest.fixture
async def clock() -> AsyncIterator[PatientClock]:
    with anyio.fail_after(120):
        yield PatientClock()


def run_of(place: Path) -> RunDir:
    return RunDir(place / MACHINE / "run")


async def test_a_keeper_that_ends_before_its_vmm_is_not_the_end(tmp_path: Path, clock: PatientClock) -> None:
    """The one that was launched is gone, and another holds the lock: looked at again and again, but with pauses."""
    seen = tmp_path / "seen"
    keeper = f"import os, time\nos.fork() and os._exit(0)\nwhile not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
    program = Program(keeper, boots=False)
    driver = PilotDriver(program, tmp_path, clock)
    await driver.prepare(spec("unused"))
    run = run_of(tmp_path)
    with program.channel.files(run, spec("unused")) as fds:
        pid = await program.launch(spec("unused"), run, fds)
        run.write_pid(pid)
    found: list[Exit] = []

    async def wait() -> None:
        found.append(await driver.wait(MACHINE))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await eventually(lambda: len(clock.naps) >= 10)
        assert found == []
        seen.touch()
    assert found[0].fault == "kernel panic: no root" and not run.alive()
    assert len(clock.naps) <= 300
    await driver.destroy(MACHINE)


async def test_a_guest_in_a_snapshot_has_not_ended(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(), tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    await driver.suspend(MACHINE)
    seen = await PilotDriver(Guest(), tmp_path, clock).inspect(MACHINE)
    assert (seen.phase, seen.pid) == (Phase.SUSPENDED, None) and marked(spec("")) == []
    ended: list[Exit] = []

    async def wait() -> None:
        ended.append(await driver.wait(MACHINE))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        while not clock.naps:
            await anyio.lowlevel.checkpoint()
        assert ended == []
        await driver.destroy(MACHINE)
        group.cancel_scope.cancel()
    assert not run_of(tmp_path).exists()


async def test_stop_gives_up_a_snapshot_that_cannot_be_used(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(whole=False), tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    await driver.suspend(MACHINE)
    exit = await driver.stop(MACHINE, "SIGTERM", 5)
    assert exit.exit_code == 137 and (await driver.inspect(MACHINE)).phase is Phase.EXITED
    await driver.destroy(MACHINE)


async def test_a_process_that_ended_by_itself_before_it_began_is_judged_once(
    tmp_path: Path, clock: PatientClock
) -> None:
    driver = PilotDriver(Program("", boots=False), tmp_path, clock)
    seen = await driver.start(spec("unused"))
    assert seen.phase is Phase.EXITED and seen.exit is not None and seen.exit.fault == "kernel panic: no root"
    again = await PilotDriver(Guest(), tmp_path, clock).inspect(MACHINE)
    assert again.exit == seen.exit
    await driver.destroy(MACHINE)


async def test_nothing_that_never_began_has_ended(tmp_path: Path, clock: PatientClock) -> None:
    driver = PilotDriver(Guest(), tmp_path, clock)
    await driver.prepare(spec("unused"))
    with pytest.raises(NotFound):
        await driver.wait(MACHINE)
    assert (await driver.inspect(MACHINE)).phase is Phase.PREPARED
    await driver.destroy(MACHINE)
    assert os.listdir(tmp_path) == []


class Slow(Guest):
    """Others come while it ends what is left of a machine."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        self.ended += 1
        await anyio.lowlevel.checkpoint()
        await super().kill(machine_id, run, pid)


async def test_an_exit_that_two_wait_for_is_settled_once(tmp_path: Path, clock: PatientClock) -> None:
    technology = Slow()
    driver = PilotDriver(technology, tmp_path, clock)
    await driver.start(spec("sleep 1000"))
    found: list[Exit] = []

    async def wait() -> None:
        found.append(await driver.wait(MACHINE))

    ended_before = technology.ended
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await driver.signal(MACHINE, 9)
    assert len(found) == 3 and len(set(found)) == 1 and technology.ended == ended_before + 1
    await driver.destroy(MACHINE)
