"""The frames of `edge.sock`: cut out of any pieces, and bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.feed import (
    PART_MACHINES,
    AllMachines,
    EdgeInbox,
    MachineGone,
    MachineRoute,
    MoreMachines,
    SealedCertificate,
    ToEdge,
    WakeMachine,
    WorkerInbox,
    frame,
    in_parts,
)
from hawker.ids import AppName, MachineId
from hawker.machine import State
from hawker.secret.certificate_chain import MAX_KEPT_BYTES


@given(st.lists(st.integers(1, 50), max_size=20))
def test_messages_come_out_of_any_pieces_as_they_went_in(sizes: list[int]) -> None:
    messages: list[ToEdge] = [AllMachines(machines=()), MachineGone(id=MachineId("1")), MachineGone(id=MachineId("2"))]
    data, inbox, found = b"".join(frame(message) for message in messages), EdgeInbox(), list[ToEdge]()
    while data:
        size = sizes.pop() if sizes else len(data)
        found += inbox.read(data[:size])
        data = data[size:]
    assert found == messages


def test_a_frame_beyond_its_bound_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="at most"):
        WorkerInbox().read(b"\xff\xff\xff\xff")


def test_a_line_that_is_no_message_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid value"):
        WorkerInbox().read(frame(MachineGone(id=MachineId("1"))))
    assert WorkerInbox().read(frame(WakeMachine(call=1, id=MachineId("1"))))


def test_all_machines_are_told_in_parts_of_bounded_size_of_which_only_the_last_is_without_more() -> None:
    machines = [
        MachineRoute(id=MachineId(f"{number:014x}"), app=AppName("shop"), state=State.STARTED, version=f"{number:026}")
        for number in range(2 * PART_MACHINES + 1)
    ]
    sealed = [
        SealedCertificate(hostname=f"{number}.example.com", app=AppName("shop"), sealed=bytes(MAX_KEPT_BYTES))
        for number in range(50)
    ]
    first, *others = in_parts(AllMachines(machines=(), region="mad"), iter(machines), iter(sealed))
    assert isinstance(first, AllMachines) and first.region == "mad"
    rest = [each for each in others if isinstance(each, MoreMachines)]
    assert len(rest) == len(others) and [first.more, *(each.more for each in rest)] == [*[True] * len(rest), False]
    assert [machine for part in rest for machine in part.machines] == machines
    assert [found for part in rest for found in part.certificates] == sealed
    assert max(len(part.machines) for part in rest) == PART_MACHINES
    assert max(len(frame(part)) for part in rest) < 1 << 20


def test_all_of_nothing_is_a_beginning_and_an_end() -> None:
    assert list(in_parts(AllMachines(machines=()), (), ())) == [AllMachines(machines=(), more=True), MoreMachines()]
