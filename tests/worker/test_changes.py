import anyio
import msgspec
import pytest

from hawker.errors import Conflict, DeadlineExceeded, NotFound
from hawker.ids import EventId, MachineId
from hawker.machine import State
from hawker.record.machine import Detail, EventRecord, MachineRecord
from hawker.sim.harness.loop import LoopClock
from hawker.worker.changes import Changes, reached, wait, wanted
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio
ONE, OTHER = MachineId("1"), MachineId("2")


async def test_only_a_change_of_the_machine_wakes_who_waits_for_it() -> None:
    changes, answers = Changes(), [None, None, "there"]
    asked = 0

    def check() -> str | None:
        nonlocal asked
        asked += 1
        return answers[asked - 1]

    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert await changes.until(ONE, check) == "there"

        tasks.start_soon(wait)
        for expected, machine_id in ((1, OTHER), (1, ONE), (2, ONE)):
            await LoopClock().sleep(1)
            assert asked == expected
            changes.notify(machine_id)
    assert asked == 3


async def test_all_who_wait_are_woken() -> None:
    changes = Changes()
    there: list[int] = []
    woken: list[str] = []

    async def wait(name: str) -> None:
        await changes.until(ONE, lambda: True if there else None)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "a")
        tasks.start_soon(wait, "b")
        await LoopClock().sleep(1)
        there.append(1)
        changes.notify(ONE)
    assert woken == ["a", "b"]


async def test_a_caller_who_gives_up_leaves_nothing_behind() -> None:
    changes = Changes()
    with anyio.move_on_after(1):
        await changes.until(ONE, lambda: None)
    assert changes.waiting == 0


def test_listeners_hear_of_every_change() -> None:
    changes = Changes()
    heard: list[MachineId] = []
    changes.listen(heard.append)
    changes.notify(ONE)
    changes.notify(OTHER)
    assert heard == [ONE, OTHER]


def _event(event_id: str, status: str, type: str = "start") -> EventRecord:
    return EventRecord(id=EventId(event_id), type=type, status=status, source="flyd", at=NOW)


def _none(after: str) -> list[EventRecord]:
    return []


def test_any_of_several_states_answers() -> None:
    assert reached(machine(), wanted(("stopped", "started"), None, None), _none) is State.STARTED


def test_settled_means_any_resting_state() -> None:
    settled = wanted(("settled",), None, None)
    assert reached(machine(state=State.FAILED), settled, _none) is State.FAILED
    assert reached(machine(state=State.STARTING), settled, _none) is None


def test_a_state_passed_through_since_the_event_counts() -> None:
    stopped = machine(state=State.STOPPED, last_event=EventId("E3"))
    want = wanted(("started",), None, "E1")
    assert reached(stopped, want, lambda after: [_event("E2", "started")]) is State.STARTED


@pytest.mark.parametrize(
    ("state", "later", "stopped"),
    [
        (State.RESTARTING, [], False),
        (State.UPDATING, [], False),
        (State.STARTING, [], False),
        (State.STARTING, ["exit"], False),
        (State.STARTED, ["renamed", "started"], False),
        (State.FAILED, ["failed"], False),
        (State.STARTED, ["starting", "started"], True),
        (State.STARTED, ["restarting", "started"], True),
        (State.STARTING, ["starting"], True),
        (State.STARTING, ["stopped"], True),
        (State.DESTROYING, [], True),
    ],
)
def test_an_exit_within_a_restart_or_an_update_is_no_stop(state: State, later: list[str], stopped: bool) -> None:
    now = machine(state=state, last_event=EventId("E9"))
    ended = msgspec.structs.replace(_event("E2", "stopped", "exit"), detail=Detail())
    again = msgspec.structs.replace(ended, id=EventId("E3"), detail=Detail(restarting=True))
    events = [ended, *(again if each == "exit" else _event("E3", each) for each in later)]
    answer = reached(now, wanted(("stopped",), None, "E1"), lambda after: events)
    assert answer is (State.STOPPED if stopped else None)


def test_a_state_reached_before_the_event_does_not_count() -> None:
    assert reached(machine(last_event=EventId("E1")), wanted(("started",), None, "E1"), _none) is None


def test_a_start_that_was_over_before_anyone_looked_counts_for_who_waited_by_then() -> None:
    stopped, want = machine(state=State.STOPPED, last_event=EventId("E3")), wanted(("started",), None, None)
    since = {"E1": [_event("E2", "started"), _event("E3", "stopped")], "E2": [_event("E3", "stopped")]}
    assert reached(stopped, want, since.__getitem__, "E1") is State.STARTED
    assert reached(stopped, want, since.__getitem__, "E2") is None
    assert reached(stopped, want, since.__getitem__) is None


def test_an_older_version_can_never_be_reached() -> None:
    with pytest.raises(Conflict, match="was replaced by V1"):
        reached(machine(), wanted(("started",), "V0", None), _none)


def test_a_newer_version_is_waited_for() -> None:
    assert reached(machine(), wanted(("started",), "V2", None), _none) is None


def test_a_machine_that_is_gone_is_not_found_unless_that_was_waited_for() -> None:
    gone = machine(state=State.DESTROYED)
    assert reached(gone, wanted(("destroyed",), None, None), _none) is State.DESTROYED
    with pytest.raises(NotFound):
        reached(gone, wanted(("started",), None, None), _none)


async def test_a_change_wakes_the_wait() -> None:
    changes, states = Changes(), [State.STARTING]

    def record_of() -> MachineRecord:
        return machine(state=states[-1])

    async with anyio.create_task_group() as tasks:

        async def finish() -> None:
            states.append(State.STARTED)
            changes.notify(record_of().id)

        tasks.start_soon(finish)
        state, _ = await wait(changes, record_of, wanted(("started",), None, None), 5, _none)
    assert state is State.STARTED


async def test_a_machine_that_starts_and_ends_between_two_looks_was_started() -> None:
    changes, records = Changes(), [machine(state=State.RESTARTING, last_event=EventId("E1"))]

    def events_since(after: str) -> list[EventRecord]:
        events = [_event("E2", "started"), _event("E3", "stopped")] if len(records) > 1 else []
        return [event for event in events if event.id > after]

    async with anyio.create_task_group() as tasks:

        async def start_and_end() -> None:
            records.append(machine(state=State.STOPPED, last_event=EventId("E3")))
            changes.notify(records[-1].id)

        tasks.start_soon(start_and_end)
        state, record = await wait(changes, lambda: records[-1], wanted(("started",), None, None), 5, events_since)
    assert (state, record.state) == (State.STARTED, State.STOPPED)


async def test_the_deadline_names_the_wanted_and_the_current_state() -> None:
    text = "deadline_exceeded: machine failed to reach desired state, stopped, currently started"
    with pytest.raises(DeadlineExceeded, match=text):
        await wait(Changes(), machine, wanted(("stopped",), None, None), 0.01, _none)


async def test_a_change_is_read_once_for_all_who_wait_for_the_machine() -> None:
    changes, reads, scans = Changes(), list[str](), list[str]()
    record = machine(ONE, state=State.STOPPED)
    events = [
        EventRecord(id=EventId(f"e{n}"), type="start", status="starting", source="flyd", at=NOW) for n in range(9)
    ]

    def record_of() -> MachineRecord:
        reads.append(record.state)
        return record

    def events_since(after: str) -> list[EventRecord]:
        scans.append(after)
        return [event for event in events if event.id > after]

    async def wait_for_start(after: str) -> None:
        state, _ = await wait(changes, record_of, wanted(("started",), None, after), 60, events_since)
        assert state is State.STARTED

    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(wait_for_start, f"e{8 - number}")
        await LoopClock().sleep(1)
        for version in ("V2", "V3"):
            del reads[:], scans[:]
            record = machine(ONE, state=State.STOPPED, version=version)
            changes.notify(ONE)
            await LoopClock().sleep(1)
            assert len(reads) == 1 and len(scans) <= 2
        del reads[:]
        record = machine(ONE, state=State.STARTED, last_event=EventId("f"))
        changes.notify(ONE)
    assert reads == [State.STARTED] and changes.waiting == 0


async def test_a_read_of_one_who_waits_is_dropped_with_the_last_of_them() -> None:
    changes, record = Changes(), machine(ONE, state=State.STOPPED)
    with anyio.move_on_after(1):
        await changes.until(ONE, lambda: None if changes.record(ONE, lambda: record) else True)
    assert changes.waiting == 0
    changed = machine(ONE, state=State.STARTED)
    assert changes.record(ONE, lambda: changed) == changed
