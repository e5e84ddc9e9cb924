"""What is made of a pilot's words about single processes, and of its journal once it is dead."""

import itertools
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.errors import Unavailable, WrongState
from hawker.runtime.driver import Exit, ProcessPhase, ProcessState
from hawker.runtime.pilot import frames
from hawker.runtime.pilot.channel import connect
from hawker.runtime.pilot.connection import PATIENCE
from hawker.runtime.pilot.exit import JournalState
from hawker.runtime.pilot.frames import FrameKind
from hawker.runtime.pilot.processes import ProcessWatch, begin_run, end_run, recorded_states
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, answering, pilot
from tests.runtime.plain import spec

pytestmark = pytest.mark.anyio

SECOND = frames.encode(FrameKind.HELLO, 0, frames.number(frames.MAGIC, 4) + b"\2\0\2" + frames.string("instance"))
WATCHING = frames.encode(FrameKind.WATCHING, 1)
KILLED = Exit(exit_code=137, signal=9, exited_at=9.0)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def named(*names: str, held: bool = False) -> InstanceSpec:
    process = msgspec.structs.replace(spec("true").processes[0], held=held)
    processes = tuple(msgspec.structs.replace(process, name=name) for name in names)
    return msgspec.structs.replace(spec("true"), processes=processes)


def state(code: int, run: int = 1, process: int = 0) -> bytes:
    payload = bytes([process, code]) + frames.number(run, 4) + frames.number(5, 4) + frames.number(10**9, 8)
    ending = frames.number(2 * 10**9, 8) + frames.number(3, 4) + frames.number(0, 4) + b"\0" + frames.string("")
    return frames.encode(FrameKind.STATE, 1, payload + (b"\1" + ending if code == 3 else b"\0"))


async def test_states_carry_the_names_of_the_spec(run: RunDir) -> None:
    with pilot(run, SECOND, asked=state(2) + state(0, 0, 1) + WATCHING, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            states = await ProcessWatch(connection, named("web", "db")).begin()
    assert [(each.name, each.state) for each in states] == [("web", ProcessPhase.RUNNING), ("db", ProcessPhase.HELD)]


async def test_a_pilot_of_version_1_is_not_asked(run: RunDir) -> None:
    with pilot(run, HELLO, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            with pytest.raises(WrongState, match="restart it"):
                ProcessWatch(connection, named("web"))


@pytest.mark.parametrize(
    "answer",
    [
        WATCHING,
        state(2) + state(2, process=1) + frames.encode(FrameKind.STATE, 1, b"\1"),
        frames.encode(FrameKind.STATE, 1, b"\0\x63" + bytes(17)),
        state(2),
        frames.encode(FrameKind.REFUSED, 1, b"\xff"),
    ],
    ids=["too few", "cut short", "no such state", "gone", "a refusal without a reason"],
)
async def test_a_pilot_that_tells_nonsense_is_unavailable(run: RunDir, answer: bytes) -> None:
    with pilot(run, SECOND, asked=answer), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            with pytest.raises(Unavailable):
                await ProcessWatch(connection, named("web", "db")).begin()


async def test_a_process_that_the_spec_has_not_is_passed_over(run: RunDir) -> None:
    with pilot(run, SECOND, asked=state(2) + state(2, process=200) + WATCHING, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            assert len(await ProcessWatch(connection, named("web")).begin()) == 1


async def test_a_flood_of_changes_is_cut_off(run: RunDir) -> None:
    with pilot(run, SECOND, asked=state(2) + WATCHING + state(2) * 5000), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            watch = ProcessWatch(connection, named("web"))
            with pytest.raises(Unavailable):
                while True:
                    await watch.next()


async def test_a_run_is_waited_for_until_it_is_executed(run: RunDir) -> None:
    answers = state(0, 0) + WATCHING + state(1) + state(1) + state(2)
    with pilot(run, SECOND, asked=answers, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            found = await begin_run(ProcessWatch(connection, named("web")), named("web"), 0, 1)
    assert (found.state, found.run) == (ProcessPhase.RUNNING, 1)


async def test_a_refusal_is_a_wrong_state(run: RunDir) -> None:
    refused = frames.encode(FrameKind.REFUSED, 1, frames.string("the machine is not running"))
    with pilot(run, SECOND, asked=state(0, 0) + WATCHING + refused, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            with pytest.raises(WrongState, match="the machine is not running"):
                await begin_run(ProcessWatch(connection, named("web")), named("web"), 0, 1)


async def test_the_end_of_a_run_is_waited_for_and_a_later_one_is_none_of_ours(run: RunDir) -> None:
    for last in (state(3), state(2, 2)):
        run.socket.unlink(missing_ok=True)
        with pilot(run, SECOND, asked=state(2) + WATCHING + state(2) + last, hold=True), anyio.fail_after(DEADLINE_S):
            async with connect(run) as connection:
                await connection.hello()
                await end_run(ProcessWatch(connection, named("web")), 0, 15, 1.0)


# --- from the journal


def test_before_a_spec_was_accepted_nothing_ran() -> None:
    assert recorded_states(named("web"), JournalState(), None) == (ProcessState(name="web"),)


def test_a_machine_without_records_of_runs_ran_each_process_once() -> None:
    own = Exit(exit_code=3, exited_at=5.0)
    story = JournalState(instance_id="i", ready_at=1.0, exits={0: own})
    going = recorded_states(named("", ""), story, None)
    assert [(each.state, each.run, each.exit) for each in going] == [
        (ProcessPhase.EXITED, 1, own),
        (ProcessPhase.RUNNING, 1, None),
    ]
    over = recorded_states(named("", ""), story, KILLED)
    assert over[1].exit == msgspec.structs.replace(KILLED, process=1)


def test_a_held_process_that_never_began_stays_held() -> None:
    story = JournalState(instance_id="i", ready_at=1.0)
    assert recorded_states(named("web", held=True), story, KILLED) == (ProcessState(name="web"),)


def test_a_run_without_an_end_was_killed_with_its_machine() -> None:
    runs = {0: ProcessState(state=ProcessPhase.RUNNING, run=4, pid=9, started_at=2.0)}
    (found,) = recorded_states(named("web", held=True), JournalState(instance_id="i", runs=runs), KILLED)
    assert (found.name, found.state, found.run, found.pid, found.exit) == ("web", ProcessPhase.EXITED, 4, None, KILLED)


async def test_a_pilot_that_says_the_same_over_and_over_is_cut_off(run: RunDir) -> None:
    """One at a time, so that none is too many to hold: a guest could keep its watcher busy for ever."""
    again = state(2)
    with answering(run, lambda frame: again + WATCHING if frame.kind == FrameKind.WATCH else again):
        async with connect(run) as connection:
            await connection.hello()
            watch = ProcessWatch(connection, named("web"))
            await watch.begin()
            with anyio.fail_after(120), pytest.raises(Unavailable, match="over and over"):
                while True:
                    watch.send(frames.encode(FrameKind.LIST, watch.channel))
                    await watch.next()


async def test_changes_are_told_however_many_they_are(run: RunDir) -> None:
    turns = itertools.count(1)
    with answering(run, lambda frame: state(2, run=next(turns)) + (WATCHING if frame.kind == FrameKind.WATCH else b"")):
        async with connect(run) as connection:
            await connection.hello()
            watch = ProcessWatch(connection, named("web"))
            await watch.begin()
            with anyio.fail_after(120):
                for turn in range(2, 2 * PATIENCE):
                    watch.send(frames.encode(FrameKind.LIST, watch.channel))
                    assert (await watch.next())[0].run == turn


async def test_a_process_that_the_machine_does_not_have_is_passed_over(run: RunDir) -> None:
    told = state(2) + state(2, process=255) + WATCHING
    with pilot(run, SECOND, asked=told, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            await connection.hello()
            assert len(await ProcessWatch(connection, named("web")).begin()) == 1
