"""The frames of `edge.sock`: cut out of any pieces, and bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.feed import AllMachines, EdgeInbox, MachineGone, ToEdge, WakeMachine, WorkerInbox, frame
from hawker.ids import MachineId


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
