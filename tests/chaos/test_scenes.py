"""Every flow has its scenes, and scenes do what they say, on a worker in virtual time."""

from pathlib import Path

import pytest

from hawker.chaos.copy_scenes import off_with_damaged_volume
from hawker.chaos.customer import Customer
from hawker.chaos.larder import write_commandless_image
from hawker.chaos.scenes import SCENES, Scene, declared, unmet, without_repetition
from hawker.chaos.stage import APP, Stage, Wares
from hawker.machine import State
from hawker.proof.promises import Promises
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle import FLOWS
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time
PLAYED = tuple(
    scene for scene in SCENES if not scene.archives and not scene.sweeps and scene.before is not off_with_damaged_volume
)  # which only a node set up for it does, or one with files of its own


def test_every_flow_has_a_scene_and_every_scene_a_flow() -> None:
    assert {scene.flow for scene in SCENES} == {flow.name for flow in FLOWS}


def test_every_declared_place_is_some_scenes() -> None:
    orphans = [place for place in declared() if not any(scene.is_about(place) for scene in SCENES)]
    assert orphans == []


def test_a_place_that_nobody_met_is_told() -> None:
    places = declared()
    assert unmet(places) == []
    assert unmet(places - {"stop.halt.before"}) == ["stop.halt.before"]
    assert unmet(places - {"create.accept.after"}) == ["create.accept.after"]


def test_a_point_inside_of_a_shared_step_is_met_in_any_flow() -> None:
    places = declared()
    halts = {f"{flow.name}.halt.asked" for flow in FLOWS if flow.find("halt")}
    assert unmet(places - halts) == sorted(halts)
    assert unmet((places - halts) | {"stop.halt.asked"}) == []


def test_what_was_met_in_one_flow_is_not_repeated_in_another() -> None:
    met = {
        "stop": ("stop.halt.before", "stop.halt.asked"),
        "restart": ("restart.halt.before", "restart.halt.asked", "restart.launch.spawned"),
    }
    assert without_repetition(met) == {
        "stop": met["stop"],
        "restart": ("restart.halt.before", "restart.launch.spawned"),
    }


@pytest.mark.anyio
@pytest.mark.parametrize("scene", PLAYED, ids=lambda scene: scene.name)
async def test_a_scene_ends_where_it_says(scene: Scene, stall: MemoryWorld, tmp_path: Path) -> None:
    wares = Wares("container", write_commandless_image(tmp_path / "image"), tmp_path / "archive")
    async with stall.open() as worker:
        customer = Customer(worker.api, APP)
        await customer.open()
        await customer.open()
        stage = Stage(customer, wares, Promises(), "order", stall.clock)
        before = await scene.before(stage)
        await worker.at_rest()
        machine_id = await scene.act(stage, before)
        await worker.at_rest()
        await stall.clock.sleep(5)
        await worker.at_rest()
        assert worker.record(machine_id).state is scene.done
        assert stage.promises.broken(worker.store) == []
        await stage.clear()
        assert worker.machines() == []
    assert scene.done in State
