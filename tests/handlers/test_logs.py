"""What a node has of an app's log, and its audit log: read piece by piece for another node, which merges all."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import NODE_LOG, NodeLogQuery
from hawker.api.contract.audit import NODE_AUDIT, NodeAuditPart, NodeAuditQuery
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.audit.audit_log import AuditLog, segments
from hawker.clock import ManualClock, SystemClock
from hawker.errors import NotFound
from hawker.handlers.logs import AppLogHandlers, AuditHandlers
from hawker.ids import AppName
from hawker.logs.app_log import AppLog, LogLimits
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.apps import AppTable
from tests.logs.test_machine_logs import WORD, Desk, desk
from tests.logs.test_shipping import NODE
from tests.worker.machines import NOW

__all__ = ["desk"]
pytestmark = pytest.mark.anyio


def write(directory: Path, *whats: str) -> None:
    directory.mkdir(exist_ok=True)
    log = AuditLog(directory, ManualClock(1_000_000.0), 1 << 24)
    log.open()
    for what in whats:
        log.append(what=what, who="ci")
    log.close()


async def read(directory: Path, **query: object) -> NodeAuditPart:
    handlers = Handlers()
    handlers.add(AuditHandlers(directory))
    asked = NodeAuditQuery(**query)  # type: ignore[arg-type]
    return await InProcessCaller(handlers, LoopClock(), "ann").call(NODE_AUDIT, query=asked)


async def test_an_audit_log_is_read_on_from_the_position_of_the_last_piece(tmp_path: Path) -> None:
    write(tmp_path / "audit", "first", "second", "third")
    found, after, more = list[str](), None, True
    while more:
        part = await read(tmp_path / "audit", after=after, most_bytes=1)
        found += [line.entry.split('"what":"')[1].split('"')[0] for line in part.lines]
        after, more = part.position, part.more
        assert len(found) <= 3
    assert found == ["first", "second", "third"]


async def test_an_audit_log_that_was_changed_says_at_which_entry(tmp_path: Path) -> None:
    write(tmp_path / "audit", "first", "second", "third")
    assert (await read(tmp_path / "audit")).broken == ""
    (segment,) = segments(tmp_path / "audit")
    segment.write_bytes(segment.read_bytes().replace(b"second", b"sacond"))
    assert (await read(tmp_path / "audit")).broken.startswith("entry ")


async def test_app_log_of_a_quiet_machine_is_read_in_pieces_that_nobody_waits_for(desk: Desk) -> None:
    kept = AppLog(desk.directory / "a1", LogLimits(), NOW)
    kept.append([replace(WORD, machine="quiet")], {})
    for _ in range(20):
        kept.append([replace(WORD, machine="m1", text="x" * (1 << 20))], {})
    handlers, clock = Handlers(), SystemClock()
    async with desk.daemon() as logs:
        handlers.add(AppLogHandlers(NODE, desk.store, AppTable(desk.store, clock, None), clock, logs))  # type: ignore[arg-type]
        caller, params = InProcessCaller(handlers, clock, "ann"), AppParams(app_name=AppName("stall"))
        query = NodeLogQuery(machine="quiet", wait_s=20.0)
        parts = [await caller.call(NODE_LOG, params=params, query=query)]
        while parts[-1].more:
            query = replace(query, after=parts[-1].position, wait_s=0.0)
            parts.append(await caller.call(NODE_LOG, params=params, query=query))
        with anyio.fail_after(10):
            query = NodeLogQuery(machine="nobody", after=0, wait_s=20.0)
            nothing = await caller.call(NODE_LOG, params=params, query=query)
        last = await caller.call(NODE_LOG, params=params, query=NodeLogQuery(machine="quiet", tail=1))
    found = [line.text for part in parts for line in part.lines]
    assert (found, len(parts), parts[-1].position) == (["word"], 3, kept.position)
    assert (nothing.lines, nothing.more) == ((), True) and nothing.position < kept.position
    assert ([line.text for line in last.lines], last.position, last.more) == (["word"], kept.position, False)


async def test_a_node_without_logs_is_at_the_position_that_it_was_asked_for(worker: SimWorker) -> None:
    fresh = await worker.api.call(NODE_LOG, params=AppParams(app_name=AppName(APP)), query=NodeLogQuery())
    assert (fresh.lines, fresh.position) == ((), -1)
    later = await worker.api.call(NODE_LOG, params=AppParams(app_name=AppName(APP)), query=NodeLogQuery(after=7))
    assert (later.lines, later.position) == ((), 7)
    with pytest.raises(NotFound):
        await worker.api.call(NODE_LOG, params=AppParams(app_name=AppName("nobody")), query=NodeLogQuery())
