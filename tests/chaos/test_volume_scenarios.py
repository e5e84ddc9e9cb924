"""Scenes with volumes on a played node: each is set, and its call does what it says, also when it is repeated."""

from pathlib import Path

import pytest

from hawker.chaos.scenario_context import APP, SampleMachines, ScenarioClient, ScenarioContext, write_commandless_image
from hawker.chaos.volume_scenarios import create_with_volume, extend_volume, off_with_volume, with_free_volume
from hawker.machine import State
from hawker.proof.promises import Promises
from hawker.record.volume import VOLUMES
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def test_a_scene_with_a_volume_is_set_and_its_call_may_come_twice(stall: MemoryWorld, tmp_path: Path) -> None:
    async with stall.open() as worker:
        customer = ScenarioClient(worker.api, APP)
        await customer.open()
        samples = SampleMachines("container", write_commandless_image(tmp_path / "image"), tmp_path / "archive")
        context = ScenarioContext(customer, samples, Promises(), "order 1", stall.clock)
        await with_free_volume(context)
        first = await create_with_volume(context, None)
        assert await create_with_volume(context, None) == first
        assert len(list(worker.store.scan(VOLUMES))) == 1
        off = await off_with_volume(context)
        await worker.reaches(off, State.STOPPED)
        for _ in range(2):
            assert await extend_volume(context, off) == off
        sizes = {record.machine: record.size_gb for _, record in worker.store.scan(VOLUMES)}
        assert sizes == {first: 1, off: 2}
