"""What a client can see of a machine, and what it can never see."""

from datetime import UTC, datetime

import msgspec
import pytest

from hawker.api.contract.machine import ImageRef, Machine, MachineEvent
from hawker.machine import State
from hawker.proof.promises import impossible, unknown, vanished

CREATED, STARTED = ("launch", "created"), ("start", "started")
SUSPENDED = ("suspend", "suspended")
EXIT, STOPPED = ("exit", "stopped"), ("stop", "stopped")
DESTROYED, UPDATE_FAILED = ("destroy", "destroyed"), ("update", "failed")


def machine(state: State, *oldest_first: tuple[str, str], version: str = "1") -> Machine:
    events = (
        MachineEvent(id=f"{number:02}", type=type, status=status, source="user", timestamp=number)
        for number, (type, status) in enumerate(oldest_first)
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Machine(
        id="m",
        name="m",
        state=state,
        region="local",
        image_ref=ImageRef(registry="", repository="", tag="", digest=""),
        instance_id=version,
        version=version,
        private_ip="",
        created_at=at,
        updated_at=at,
        host_status="ok",
        events=tuple(events)[::-1],
    )


@pytest.mark.parametrize(
    "seen",
    [
        machine(State.CREATED, CREATED),
        machine(State.STARTED, CREATED, STARTED),
        machine(State.STARTED, CREATED, STARTED, ("update", "updating"), UPDATE_FAILED),
        machine(State.RESTARTING, CREATED, STARTED, ("restart", "restarting")),
        machine(State.STOPPED, CREATED, STOPPED),
        machine(State.STOPPED, CREATED, STARTED, EXIT),
        machine(State.STARTING, CREATED, STARTED, EXIT),
        machine(State.FAILED, CREATED, ("start", "failed")),
        machine(State.SUSPENDED, CREATED, STARTED, SUSPENDED),
        machine(State.STARTING, CREATED, STARTED, SUSPENDED, ("start", "starting")),
        machine(State.STARTED, CREATED, STARTED, SUSPENDED, STARTED),
        machine(State.STARTED, CREATED, STARTED, ("suspend", "suspending"), ("suspend", "failed")),
        machine(State.STOPPED, CREATED, STARTED, SUSPENDED, EXIT),
        machine(State.DESTROYED, CREATED, STARTED, EXIT, DESTROYED),
        machine(State.DESTROYED, CREATED, ("launch", "launch_failed")),
        machine(State.STARTED, *[EXIT, STARTED] * 10),
    ],
    ids=lambda seen: f"{seen.state} after {len(seen.events)}",
)
def test_machine_views_that_can_be(seen: Machine) -> None:
    assert impossible(seen) == []


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (machine(State.CREATED), "without any event"),
        (machine(State.STARTED, STARTED), "begins with start/started"),
        (machine(State.STARTED, CREATED), "nothing says so"),
        (machine(State.STARTED, CREATED, STARTED, EXIT), "the last is exit/stopped"),
        (machine(State.STOPPED, CREATED, STARTED), "has not ended"),
        (machine(State.STARTING, CREATED, STARTED), "has not ended"),
        (machine(State.SUSPENDED, CREATED, STARTED), "has not ended"),
        (machine(State.STOPPED, CREATED, STARTED, SUSPENDED), "what was suspended has not ended"),
        (machine(State.STARTED, CREATED, STARTED, SUSPENDED), "the last is suspend/suspended"),
        (machine(State.DESTROYED, CREATED, STARTED, EXIT), "its last event is exit"),
        (machine(State.STOPPED, CREATED, DESTROYED), "its last event is destroy"),
        (msgspec.structs.replace(machine(State.CREATED, CREATED), version="2"), "instance_id 1 and version 2"),
    ],
)
def test_machine_views_that_cannot_be(seen: Machine, what: str) -> None:
    assert any(what in found.what for found in impossible(seen)), impossible(seen)


def test_events_are_newest_first() -> None:
    seen = machine(State.STARTED, CREATED, STARTED)
    turned = msgspec.structs.replace(seen, events=seen.events[::-1])
    assert "its events are not newest first" in [found.what for found in impossible(turned)]


def test_machine_seen_once_is_seen_again() -> None:
    before = machine(State.STARTED, CREATED, STARTED)
    assert vanished(before, machine(State.STOPPED, CREATED, STARTED, EXIT)) == []
    assert [found.what for found in vanished(before, machine(State.CREATED, CREATED))] == [
        "start/started (01) was seen, and later not"
    ]


def test_a_destroyed_machine_stays_so_and_a_version_is_replaced_by_newer_ones_only() -> None:
    gone = machine(State.DESTROYED, CREATED, DESTROYED)
    assert "seen destroyed" in vanished(gone, machine(State.STARTED, CREATED, DESTROYED))[0].what
    newer, older = machine(State.STOPPED, CREATED, STOPPED, version="2"), machine(State.STOPPED, CREATED, STOPPED)
    assert vanished(older, newer) == []
    assert "version 2" in vanished(newer, older)[0].what
    assert vanished(newer, machine(State.STOPPED, CREATED, STOPPED, UPDATE_FAILED)) == []


def test_old_events_may_be_out_of_sight() -> None:
    before = machine(State.STARTED, CREATED, STARTED)
    after = machine(State.STARTED, CREATED, STARTED, EXIT, STARTED)
    assert vanished(before, msgspec.structs.replace(after, events=after.events[:2])) == []


def test_listed_machine_is_there() -> None:
    listed = [machine(State.CREATED, CREATED)]
    assert unknown(listed, []) == []
    assert [found.about for found in unknown(listed, ["m"])] == ["m"]
