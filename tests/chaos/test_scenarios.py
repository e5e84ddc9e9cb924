from pathlib import Path

import pytest

from hawker.chaos.scenario_context import APP, SampleMachines, ScenarioClient, ScenarioContext, write_commandless_image
from hawker.chaos.scenarios import BETWEEN_NODES, SCENARIOS, Scenario, declared, unmet, without_repetition
from hawker.chaos.volume_scenarios import _damage, off_with_damaged_volume
from hawker.ids import VolumeId
from hawker.machine import State
from hawker.proof.promises import Promises
from hawker.sim.node.world import MemoryWorld
from hawker.up.wiring import NODE_FLOWS
from tests.worker.hourglass import in_virtual_time


@pytest.mark.parametrize("flow", ["volume_snapshot", "volume_restore", "volume_fetch", "volume_fork"])
def test_each_flow_of_copies_has_a_scenario_that_is_about_it(flow: str) -> None:
    places = {place for place in declared() if place.startswith(f"{flow}.")}
    about = {place for scenario in SCENARIOS if scenario.flow == flow for place in places if scenario.is_about(place)}
    assert about == places != set()


def test_a_damaged_volume_has_no_superblock_and_its_size(tmp_path: Path) -> None:
    directory = tmp_path / "node" / "volumes" / "vol_0000000000000001"
    directory.mkdir(parents=True)
    (directory / "disk").write_bytes(b"x" * 8192)
    _damage(tmp_path, VolumeId("vol_0000000000000001"))
    assert (directory / "disk").read_bytes() == bytes(4096) + b"x" * 4096


anyio_backend = in_virtual_time
PLAYED = tuple(
    scenario
    for scenario in SCENARIOS
    if not scenario.archives and not scenario.sweeps and scenario.before is not off_with_damaged_volume
)  # which only a node set up for it does, or one with files of its own


def test_every_flow_has_a_scene_and_every_scene_a_flow() -> None:
    assert {scenario.flow for scenario in SCENARIOS} == {flow.name for flow in NODE_FLOWS} - BETWEEN_NODES


def test_every_declared_place_is_some_scenes() -> None:
    orphans = [place for place in declared() if not any(scenario.is_about(place) for scenario in SCENARIOS)]
    assert orphans == []


def test_a_place_that_nobody_met_is_told() -> None:
    places = declared()
    assert unmet(places) == []
    assert unmet(places - {"stop.halt.before"}) == ["stop.halt.before"]
    assert unmet(places - {"create.accept.after"}) == ["create.accept.after"]


def test_a_point_inside_of_a_shared_step_is_met_in_any_flow() -> None:
    places = declared()
    halts = {f"{flow.name}.halt.asked" for flow in NODE_FLOWS if flow.find("halt")}
    assert unmet(places - halts) == sorted(halts)
    assert unmet((places - halts) | {"stop.halt.asked"}) == []


def test_place_met_in_one_flow_is_not_repeated_in_another() -> None:
    met = {
        "stop": ("stop.halt.before", "stop.halt.asked"),
        "restart": ("restart.halt.before", "restart.halt.asked", "restart.launch.spawned"),
    }
    assert without_repetition(met) == {
        "stop": met["stop"],
        "restart": ("restart.halt.before", "restart.launch.spawned"),
    }


@pytest.mark.anyio
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
async def test_a_scene_ends_where_it_says(scenario: Scenario, stall: MemoryWorld, tmp_path: Path) -> None:
    samples = SampleMachines("container", write_commandless_image(tmp_path / "image"), tmp_path / "archive")
    async with stall.open() as worker:
        customer = ScenarioClient(worker.api, APP)
        await customer.open()
        await customer.open()
        context = ScenarioContext(customer, samples, Promises(), "order", stall.clock)
        before = await scenario.before(context)
        await worker.at_rest()
        machine_id = await scenario.act(context, before)
        await worker.at_rest()
        await stall.clock.sleep(5)
        await worker.at_rest()
        assert worker.record(machine_id).state is scenario.done
        assert context.promises.broken(worker.store) == []
        await context.clear()
        assert worker.machines() == []
    assert scenario.done in State
