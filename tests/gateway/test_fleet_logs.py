"""An app's log over several nodes: pages that go on from a token, in the order of time, each line once."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import (
    NODE_LOG,
    AppLogLinesQuery,
    AppLogPage,
    AppLogPageQuery,
    LogLine,
    NodeLogPart,
    NodeLogQuery,
    places_of,
    token_of,
)
from hawker.api.directory import Node
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.gateway.fan_out import Reach
from hawker.gateway.fleet_logs import FleetLogs
from hawker.ids import AppName, NodeId
from hawker.sim.harness.loop import LoopClock
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
APP = "shop"


class Host:
    """A node with a log: `lines` are the milliseconds of its lines."""

    def __init__(self, name: str, lines: Sequence[int], in_page: int = 100) -> None:
        self.name, self.in_page, self.away, self.known = name, in_page, False, True
        self.lines = [self.line(place, at) for place, at in enumerate(lines)]
        self.asked = list[NodeLogQuery]()
        self.scanned, self.scan_s = 100, 0.0

    def line(self, place: int, at: int) -> LogLine:
        moment = BEGAN + timedelta(milliseconds=at)
        text = f"{self.name}{at}"
        return LogLine(
            at=moment, node=self.name, region="mad", position=place, machine="m", stream=1, level="info",
            provider="app", text=text,
        )  # fmt: skip

    async def read(self, call: Call[AppParams, NodeLogQuery, None]) -> NodeLogPart:
        self.asked.append(call.query)
        await LoopClock().sleep(self.scan_s)
        if not self.known:
            raise NotFound("app not found")
        after = -1 if call.query.after is None else call.query.after
        since = call.query.since or 0
        found = [each for each in self.lines if each.position > after and each.at.timestamp() >= since]
        if call.query.after is None and call.query.tail is not None:
            found = found[len(found) - min(call.query.tail, len(found)) :]
        elif call.query.machine and after + self.scanned < len(self.lines) - 1:
            return NodeLogPart(lines=(), position=after + self.scanned, more=True)
        elif call.query.machine:
            found = found[-1:]
        elif len(found) > self.in_page:
            part = tuple(found[: self.in_page])
            return NodeLogPart(lines=part, position=part[-1].position, more=True)
        return NodeLogPart(lines=tuple(found), position=len(self.lines) - 1)


class Fleet:
    """Keeps `Directory`, as far as logs ask it, and `Peers`."""

    region = "mad"

    def __init__(self, *hosts: Host) -> None:
        self.hosts = {NodeId(host.name): host for host in hosts}
        self.clock: Clock = LoopClock()

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return list(self.hosts) if app == APP else []

    def node(self, node_id: NodeId) -> Node | None:
        return Node(id=node_id, region="mad" if node_id < "c" else "ams", labels={})

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        host = self.hosts[node_id]
        if host.away:
            raise Unavailable("away")
        handlers = Handlers()
        handlers.on(NODE_LOG, host.read)
        return InProcessCaller(handlers, self.clock, behalf)

    async def page(self, app: str = APP, **query: Any) -> AppLogPage:
        logs = FleetLogs(self, Reach(self, self), self.clock)  # type: ignore[arg-type]
        call = Call(
            params=AppParams(app_name=app),
            query=AppLogPageQuery(**query),
            body=None,
            grant=Everything(),
            request_id="r",
        )
        return await logs.page(call)

    async def all(self, **query: Any) -> tuple[list[str], str]:
        """By a broker that remembers nothing."""
        found, page = list[str](), await self.page(**query)
        found += [line.text for line in page.lines]
        while page.more:
            page = await self.page(after=page.next)
            found += [line.text for line in page.lines]
        return found, page.next


async def test_lines_of_all_nodes_come_once_and_in_the_order_of_time_however_they_are_cut_off() -> None:
    for in_page in (1, 2, 3, 100):
        fleet = Fleet(Host("a", [1, 4, 5, 9, 12], in_page), Host("b", [2, 3, 6], 2), Host("c", [20, 30], in_page))
        found, _ = await fleet.all()
        assert found == ["a1", "b2", "b3", "a4", "a5", "b6", "a9", "a12", "c20", "c30"]


async def test_a_stream_ends_with_what_is_there_unless_it_is_followed() -> None:
    fleet = Fleet(one := Host("a", [1, 3, 5], 2), Host("b", [2]))
    logs = FleetLogs(fleet, Reach(fleet, fleet), fleet.clock)  # type: ignore[arg-type]

    async def lines(*, follow: bool) -> AsyncIterator[LogLine]:
        query, params = AppLogLinesQuery(follow=follow), AppParams(app_name=APP)
        return await logs.follow(Call(params=params, query=query, body=None, grant=Everything(), request_id="r"))

    assert [line.text async for line in await lines(follow=False)] == ["a1", "b2", "a3", "a5"]
    found = list[str]()
    async for line in await lines(follow=True):
        found.append(line.text)
        if found[-1] == "a5":
            one.lines.append(one.line(3, 9))
        if found[-1] == "a9":
            break
    assert found == ["a1", "b2", "a3", "a5", "a9"]


async def test_node_that_finds_nothing_of_much_is_asked_on() -> None:
    fleet = Fleet(host := Host("a", range(50)))
    host.scanned = 10
    page = await fleet.page(machine="m")
    assert [line.text for line in page.lines] == ["a49"] and not page.more
    assert [query.after for query in host.asked] == [None, 9, 19, 29, 39]


async def test_page_keeps_how_far_a_node_came_that_found_nothing_in_time() -> None:
    fleet = Fleet(slow := Host("a", range(50)), Host("b", [7]))
    slow.scanned, slow.scan_s = 1, 0.09
    page = await fleet.page(machine="m")
    assert [line.text for line in page.lines] == ["b7"] and page.more
    assert places_of(page.next)["a"] == 2
    found = list[str]()
    while page.more:
        page = await fleet.page(machine="m", after=page.next)
        found += [line.text for line in page.lines]
    assert found == ["a49"] and places_of(page.next)["a"] == 49


async def test_a_token_goes_on_with_what_came_since() -> None:
    fleet = Fleet(one := Host("a", [1]), Host("b", [2]))
    _, token = await fleet.all()
    one.lines.append(one.line(1, 7))
    page = await fleet.page(after=token)
    assert [line.text for line in page.lines] == ["a7"]
    assert (await fleet.page(after=page.next)).lines == ()


async def test_a_node_that_is_away_is_named_and_taken_in_again() -> None:
    fleet = Fleet(Host("a", [1]), gone := Host("b", [2]))
    gone.away = True
    page = await fleet.page()
    assert [line.text for line in page.lines] == ["a1"] and page.away == ("node b in region mad",)
    gone.away = False
    again = await fleet.page(after=page.next)
    assert [line.text for line in again.lines] == ["b2"] and again.away == ()


async def test_the_last_lines_are_those_of_all_nodes_and_who_was_away_shows_only_what_is_new() -> None:
    fleet = Fleet(Host("a", [1, 5]), Host("b", [2, 6]), gone := Host("c", [3]))
    gone.away = True
    page = await fleet.page(tail=3)
    assert [line.text for line in page.lines] == ["b2", "a5", "b6"]
    gone.away = False
    await fleet.page(after=page.next)
    query = gone.asked[-1]
    assert (query.tail, query.after) == (None, None)
    assert query.since == pytest.approx(fleet.clock.now(), abs=60)


async def test_a_region_selects_nodes_and_an_unknown_app_is_not_found() -> None:
    fleet = Fleet(Host("a", [1]), Host("c", [2]))
    assert [line.text for line in (await fleet.page(region="ams")).lines] == ["c2"]
    with pytest.raises(NotFound):
        await fleet.page("nobody")
    for host in fleet.hosts.values():
        host.known = False
    with pytest.raises(NotFound):
        await fleet.page()


@pytest.mark.parametrize("token", ["x", "a:b", ":1", "a:1,b"])
async def test_a_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(BadRequest):
        await Fleet(Host("a", [])).page(after=token)


async def test_a_token_is_read_as_it_was_written() -> None:
    places = {"a": 3, "b": -1, "*": 5}
    assert places_of(token_of(places)) == places
