from pathlib import Path

import anyio
import pytest

from hawker.errors import NotFound
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.sim.worker.client_gate import ClientGate, SimConnectionLost

pytestmark = pytest.mark.anyio


async def test_a_call_waits_for_a_daemon_and_hears_its_answer(tmp_path: Path) -> None:
    stall, gate = MemoryWorld(tmp_path), ClientGate()
    heard: list[str] = []

    async def ask() -> None:
        await gate.call(lambda worker: worker.app("early"))
        heard.append("done")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await stall.clock.sleep(1)
        assert heard == []
        async with stall.open() as worker:
            gate.open(worker)
            await stall.clock.sleep(1)
            assert heard == ["done"]
            gate.shut()


async def test_a_refusal_reaches_the_caller(worker: SimWorker) -> None:
    gate = ClientGate()
    gate.open(worker)
    with pytest.raises(NotFound):
        await gate.call(lambda there: there.get("none"))


async def test_a_call_under_way_is_lost_with_the_daemon(stall: MemoryWorld) -> None:
    gate = ClientGate()
    lost: list[float] = []

    async def ask() -> None:
        try:
            await gate.call(lambda worker: stall.clock.sleep(100))
        except SimConnectionLost:
            lost.append(stall.clock.monotonic())

    async with anyio.create_task_group() as tasks:
        async with stall.open() as worker:
            gate.open(worker)
            tasks.start_soon(ask)
            await stall.clock.sleep(1)
        gate.shut()
    assert len(lost) == 1
