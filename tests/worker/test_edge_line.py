"""The connection with the edge: calls, answers, and nobody there."""

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.feed import (
    AppFigure,
    AskReport,
    CloseMachine,
    EdgeInbox,
    EdgeReport,
    ListenState,
    MachineClosed,
    MachineFigure,
    Times,
)
from hawker.ids import AppName, InstanceId, MachineId
from hawker.route_question import AskedRequest, AskRoute, ExplainedDoor, RouteExplained
from hawker.worker.edge_line import EdgeLine

pytestmark = pytest.mark.anyio
SHOP = AppName("shop")


class PlayedEdge(ByteStream):
    """Answers each call at once, but for those that it shall leave open."""

    def __init__(self, line: EdgeLine, *, silent: bool = False) -> None:
        self._line, self._silent, self._inbox = line, silent, EdgeInbox()
        self.closed: list[MachineId] = []
        self.report = EdgeReport(call=0, counters={"wakes": 3})
        self.doors: tuple[ExplainedDoor, ...] = ()
        self.asked: list[AskedRequest] = []
        self.link = line.connected(self)

    async def send(self, item: bytes) -> None:
        for message in self._inbox.read(item):
            if self._silent:
                return
            match message:
                case CloseMachine():
                    self.closed.append(message.id)
                    self._line.hear(MachineClosed(call=message.call), self.link)
                case AskReport():
                    self._line.hear(replace(self.report, call=message.call), self.link)
                case AskRoute():
                    self.asked.append(message.request)
                    self._line.hear(RouteExplained(call=message.call, doors=self.doors), self.link)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        raise anyio.EndOfStream

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


async def test_a_call_returns_with_its_answer() -> None:
    line = EdgeLine()
    edge = PlayedEdge(line)
    assert (await line.report()).counters == {"wakes": 3}
    await line.close(MachineId("m"), InstanceId("i"), 60.0)
    assert edge.closed == ["m"]


async def test_without_an_edge_a_close_is_done_and_a_report_is_refused() -> None:
    line = EdgeLine()
    await line.close(MachineId("m"), InstanceId("i"), 60.0)
    with pytest.raises(Unavailable, match="is not there"):
        await line.report()


async def test_an_edge_is_waited_for_until_it_listens_somewhere() -> None:
    line, clock, door = EdgeLine(), ManualClock(), ListenState(address="127.0.0.1", port=443, app=SHOP)
    listens = anyio.Event()

    async def wait() -> None:
        await line.listens(clock)
        listens.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(clock, 1.0)
        edge = PlayedEdge(line)
        await until(clock, 1.0)
        edge.report = EdgeReport(call=0, bound=(replace(door, refused="the port is taken"),))
        await until(clock, 1.0)
        assert not listens.is_set()
        edge.report = EdgeReport(call=0, bound=(door,))
        await listens.wait()


async def until(clock: ManualClock, seconds: float) -> None:
    """Until whoever looks again and again has waited for so long."""
    begun_at = clock.now()
    while clock.now() < begun_at + seconds:
        await checkpoint()


async def test_an_edge_that_goes_while_it_is_asked_holds_up_nobody() -> None:
    line = EdgeLine()
    edge = PlayedEdge(line, silent=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.close, MachineId("m"), InstanceId("i"), 3600.0)
        await anyio.wait_all_tasks_blocked()
        line.lost(edge.link)
    assert not line.is_up


async def test_an_edge_is_there_while_one_of_its_processes_is() -> None:
    line = EdgeLine()
    first, second = PlayedEdge(line), PlayedEdge(line)
    line.lost(first.link)
    assert line.is_up
    await line.close(MachineId("m"), InstanceId("i"), 60.0)
    assert second.closed == ["m"] and not first.closed
    line.lost(second.link)
    assert not line.is_up


async def test_a_process_that_does_not_answer_holds_up_a_close_until_it_has_gone() -> None:
    line = EdgeLine()
    first, second = PlayedEdge(line), PlayedEdge(line, silent=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.close, MachineId("m"), InstanceId("i"), 3600.0)
        await anyio.wait_all_tasks_blocked()
        assert first.closed == ["m"]
        line.lost(second.link)


async def test_the_processes_of_an_edge_are_reported_as_one() -> None:
    line = EdgeLine()
    first, second = PlayedEdge(line), PlayedEdge(line)
    door, shop = (
        ListenState(address="127.0.0.1", port=80, app=SHOP),
        AppFigure(app=SHOP, statuses={"200": 2}, buckets=(2, 0), seconds=1.0),
    )
    first.report = EdgeReport(
        call=0, bound=(replace(door, refused="not yet"),), counters={"wakes": 3}, held=1, apps=(shop,)
    )
    more = replace(shop, statuses={"200": 1, "404": 1}, handshakes={"1.3": Times(buckets=(1,), seconds=0.5)})
    machine = MachineFigure(app=SHOP, machine=MachineId("m"), connects=2)
    second.report = EdgeReport(
        call=0,
        process=1,
        bound=(door,),
        counters={"rests": 1, "wakes": 1},
        in_flight={"m": 2},
        apps=(more,),
        machines=(machine,),
    )
    said = await line.report(apps=True)
    assert said.bound == (door,) and said.counters == {"wakes": 4, "rests": 1} and said.held == 1
    assert said.in_flight == {"m": 2} and said.machines == (machine,)
    (figure,) = said.apps
    assert figure.statuses == {"200": 3, "404": 1} and figure.buckets == (4, 0) and figure.seconds == 2.0
    assert figure.handshakes == more.handshakes and figure.app == SHOP
    assert [each.process for each in await line.reports()] == [0, 1]


async def test_the_process_that_has_an_apps_gates_says_where_its_requests_go() -> None:
    line = EdgeLine()
    _, second = PlayedEdge(line), PlayedEdge(line)
    second.doors = (ExplainedDoor(address="127.0.0.1", port=80, speaks="http", outcome="goes there"),)
    request = AskedRequest(method="POST", fields=(("fly-prefer-region", "ams"),))
    assert await line.explain(SHOP, "shop", 80, tls=False, udp=False, request=request) == second.doors
    assert second.asked == [request]
