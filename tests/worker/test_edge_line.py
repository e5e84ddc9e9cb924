"""The connection with the edge: calls, answers, and nobody there."""

import anyio
import pytest
from anyio.abc import ByteStream

from hawker.errors import Unavailable
from hawker.feed import AskReport, CloseMachine, EdgeInbox, EdgeReport, MachineClosed
from hawker.ids import InstanceId, MachineId
from hawker.worker.edge_line import EdgeLine

pytestmark = pytest.mark.anyio


class PlayedEdge(ByteStream):
    """Answers each call at once, but for those that it shall leave open."""

    def __init__(self, line: EdgeLine, *, silent: bool = False) -> None:
        self._line, self._silent, self._inbox = line, silent, EdgeInbox()
        self.closed: list[MachineId] = []

    async def send(self, item: bytes) -> None:
        for message in self._inbox.read(item):
            if self._silent:
                return
            match message:
                case CloseMachine():
                    self.closed.append(message.id)
                    self._line.hear(MachineClosed(call=message.call))
                case AskReport():
                    self._line.hear(EdgeReport(call=message.call, counters={"wakes": 3}))

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        raise anyio.EndOfStream

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


async def test_a_call_returns_with_its_answer() -> None:
    line = EdgeLine()
    edge = PlayedEdge(line)
    line.connected(edge)
    assert (await line.report()).counters == {"wakes": 3}
    await line.close(MachineId("m"), InstanceId("i"), 60.0)
    assert edge.closed == ["m"]


async def test_without_an_edge_a_close_is_done_and_a_report_is_refused() -> None:
    line = EdgeLine()
    await line.close(MachineId("m"), InstanceId("i"), 60.0)
    with pytest.raises(Unavailable, match="is not there"):
        await line.report()


async def test_an_edge_that_goes_while_it_is_asked_holds_up_nobody() -> None:
    line = EdgeLine()
    edge = PlayedEdge(line, silent=True)
    line.connected(edge)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.close, MachineId("m"), InstanceId("i"), 3600.0)
        await anyio.wait_all_tasks_blocked()
        line.lost(edge)
    assert not line.is_up


async def test_the_connection_that_came_last_counts() -> None:
    line = EdgeLine()
    first, second = PlayedEdge(line), PlayedEdge(line)
    line.connected(first)
    line.connected(second)
    line.lost(first)
    assert line.is_up
