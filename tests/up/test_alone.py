"""The market on one node: asked for by our clients, beside what the worker answers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import PLACE, PlaceAnswer, PlaceRequest, Verdict
from hawker.api.local import LocalCaller
from hawker.errors import NoRoom, Unprocessable
from hawker.market.preferences import preferences
from hawker.sim.life import APP, Worker, config_of
from hawker.sim.world import Stall
from hawker.up.alone import place_alone
from hawker.up.wiring import node_handlers
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
pytestmark = pytest.mark.anyio


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    async with Stall(tmp_path).open() as worker:
        await worker.app()
        yield worker


async def _place(worker: Worker, *, key: str | None = None, memory_mb: int = 256, **given: Any) -> PlaceAnswer:
    handlers = node_handlers(worker.parts)
    place_alone(worker.parts, handlers, preferences())
    guest = {"cpu_kind": "shared", "cpus": 1, "memory_mb": memory_mb}
    machine = CreateMachineRequest(config=config_of(guest=guest), region=given.pop("region", None))
    caller = LocalCaller(handlers, worker.parts.deps.clock, "ann")
    return await caller.call(PLACE, body=PlaceRequest(app=APP, machine=machine, **given), idempotency_key=key)


async def test_a_dry_run_shows_the_bid_and_makes_nothing(worker: Worker) -> None:
    answer = await _place(worker, dry_run=True)
    assert (answer.filled, answer.machines, answer.refusal) == (1, (), None)
    (bid,) = answer.bids
    assert bid.verdict is Verdict.BEST and {part.name for part in bid.parts} >= {"cpu", "memory", "disk", "image"}
    assert worker.machines() == []


async def test_several_are_filled_at_once_and_the_same_key_finds_them_again(worker: Worker) -> None:
    answer = await _place(worker, count=3, key="three")
    assert answer.filled == 3 and len({machine.id for machine in answer.machines}) == 3
    again = await _place(worker, count=3, key="three")
    assert [machine.id for machine in again.machines] == [machine.id for machine in answer.machines]
    assert len(worker.machines()) == 3


async def test_what_does_not_fit_is_reported_and_the_rest_is_filled(worker: Worker) -> None:
    answer = await _place(worker, count=6)
    assert answer.filled == len(worker.machines()) == 4
    assert answer.refusal is not None and answer.refusal.shortfall == {"memory_mb": 256}


async def test_all_or_nothing_leaves_nothing(worker: Worker) -> None:
    with pytest.raises(NoRoom):
        await _place(worker, count=6, all_or_nothing=True)
    assert worker.machines() == []


async def test_what_cannot_be_placed_is_refused_with_the_reason(worker: Worker) -> None:
    with pytest.raises(NoRoom, match="no host in region 'mad', the nearest is 'local'"):
        await _place(worker, region="mad")
    with pytest.raises(Unprocessable, match=r"config.guest.memory_mb must be between"):
        await _place(worker, memory_mb=1)
    shown = await _place(worker, memory_mb=8192, dry_run=True)
    assert shown.refusal is not None and shown.bids[0].why == "short of 7168 memory_mb"
