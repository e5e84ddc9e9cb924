"""Audit logs over several nodes, each a real one: merged by time, each entry once, its host beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.audit import AuditPage, AuditQuery
from hawker.api.directory import Node
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, NoParams
from hawker.audit.audit_log import AuditLog, broken, segments
from hawker.clock import Clock, ManualClock
from hawker.errors import BadRequest, Forbidden, NotFound, Unavailable
from hawker.gateway import fleet_logs
from hawker.gateway.fleet_logs import fleet_audit
from hawker.handlers.logs import AuditHandlers
from hawker.ids import NodeId
from hawker.permission import Action, Attempt
from hawker.sim.harness.loop import LoopClock

pytestmark = pytest.mark.anyio


class Fleet:
    """Keeps `Directory`, as far as it is asked, and `Peers`. `moments` are the seconds of each node's entries."""

    region = "mad"

    def __init__(self, directory: Path, **moments: Sequence[int]) -> None:
        self.clock: Clock = LoopClock()
        self.directory, self.away = directory, set[str]()
        self.names = [NodeId(name) for name in moments]
        for name, seconds in moments.items():
            self.write(name, seconds)

    def write(self, name: str, seconds: Sequence[int]) -> None:
        for second in seconds:
            log = AuditLog(self.directory / name, ManualClock(1_000_000.0 + second), 1 << 24)
            (self.directory / name).mkdir(parents=True, exist_ok=True)
            log.open()
            log.append(what=f"{name}{second}", who="ci")
            log.close()

    def nodes(self) -> list[Node]:
        return [Node(id=name, region="mad", labels={}) for name in self.names]

    def node(self, node_id: NodeId) -> Node | None:
        return next((node for node in self.nodes() if node.id == node_id), None)

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        if node_id in self.away:
            raise Unavailable("away")
        handlers = Handlers()
        handlers.add(AuditHandlers(self.directory / node_id))
        return InProcessCaller(handlers, self.clock, behalf)

    async def page(self, grant: Grant | None = None, **query: Any) -> AuditPage:
        call = Call(
            params=NoParams(),
            query=AuditQuery(**query),
            body=None,
            grant=grant or Everything(),
            request_id="r",
        )
        return await fleet_audit(self, self).page(call)  # type: ignore[arg-type]

    async def all(self, **query: Any) -> list[tuple[str, str]]:
        """By brokers that remember nothing: hosts and lines."""
        found, page = list[tuple[str, str]](), await self.page(**query)
        found += [(line.host, line.entry) for line in page.lines]
        while page.more:
            page = await self.page(**query | {"after": page.next})
            found += [(line.host, line.entry) for line in page.lines]
        return found


@pytest.mark.parametrize("least", [1, 400, 1 << 14])
async def test_entries_of_all_nodes_come_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(fleet_logs, "_LEAST_BYTES", least)
    monkeypatch.setattr(fleet_logs, "PAGE_BYTES", 1)
    fleet = Fleet(tmp_path, a=[1, 4, 5, 9, 12], b=[2, 3, 6, 30], c=[20, 21])
    found = await fleet.all()
    whats = [entry.split('"what":"')[1].split('"')[0] for _, entry in found]
    assert whats == ["a1", "b2", "b3", "a4", "a5", "b6", "a9", "a12", "c20", "c21", "b30"]
    for host in "abc":
        assert broken(entry.encode() + b"\n" for name, entry in found if name == host) is None


async def test_a_clock_that_went_back_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_logs, "_LEAST_BYTES", 1)
    monkeypatch.setattr(fleet_logs, "PAGE_BYTES", 1)
    fleet = Fleet(tmp_path, a=[50, 3, 4, 60, 1], b=[2, 51])
    assert len(await fleet.all()) == 7


async def test_one_node_is_asked_for(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, a=[1], b=[2])
    assert {host for host, _ in await fleet.all(node="b")} == {"b"}
    with pytest.raises(NotFound):
        await fleet.page(node="z")


async def test_a_host_that_does_not_answer_is_named_and_told_when_it_is_back(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, a=[1], b=[2])
    fleet.away.add("b")
    page = await fleet.page()
    assert [line.host for line in page.lines] == ["a"] and page.away == ("node b in region mad",)
    fleet.away.clear()
    page = await fleet.page(after=page.next)
    assert [line.host for line in page.lines] == ["b"] and page.away == ()


async def test_an_edited_log_is_named_and_the_others_are_told(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, a=[1, 2], b=[3])
    (segment,) = segments(tmp_path / "a")
    segment.write_bytes(segment.read_bytes().replace(b'"ci"', b'"me"', 1))
    page = await fleet.page()
    assert page.broken == ("node a in region mad: entry 1: it was changed",)
    assert len(page.lines) == 3


async def test_a_place_of_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest):
        await Fleet(tmp_path, a=[1]).page(after="nonsense")


class OnlyRead(Everything):
    def check(self, attempt: Attempt) -> None:
        if attempt.action is not Action.READ:
            raise Forbidden("read only")


async def test_a_token_that_may_only_read_is_told_nothing(tmp_path: Path) -> None:
    with pytest.raises(Forbidden):
        await Fleet(tmp_path, a=[1]).page(OnlyRead())
