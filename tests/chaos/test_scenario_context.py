"""What may be ordered, by driver."""

from pathlib import Path

import pytest

from hawker.chaos.scenario_context import SampleMachines, ScenarioClient, exits_of, named, write_commandless_image
from hawker.clock import SystemClock
from hawker.config import MachineConfig
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings
from hawker.machine import State
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time


@pytest.mark.parametrize(("driver", "on_host"), [("container", False), ("process", True)])
def test_the_sample_runs_from_its_image_or_from_the_host(driver: str, on_host: bool, tmp_path: Path) -> None:
    samples = SampleMachines(driver, "oci:commandless", tmp_path)
    assert (samples.sample().init is not None) == on_host
    assert samples.echo("a")[1:] == ("echo", "a") and samples.broken().init is None


def test_a_volume_is_asked_for_by_a_name_that_it_may_have(tmp_path: Path) -> None:
    samples = SampleMachines("container", "oci:commandless", tmp_path)
    config = samples.with_volume(samples.sample(), "order 12 before")
    assert config.mounts is not None
    assert (config.mounts[0].name, config.mounts[0].path) == (named("order 12 before"), "/data")
    assert " " not in named("order 12 before")


pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
CONFIG = MachineConfig(image="hawker/hello")


async def test_a_machine_from_its_order_to_its_end(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        customer = ScenarioClient(worker.api, "shop")
        await customer.open()
        await customer.pull("hawker/hello")
        machine_id = await customer.create(CONFIG, "order", launch=False)
        assert await customer.create(CONFIG, "order", launch=False) == machine_id
        await customer.reaches(machine_id, State.STOPPED)
        await customer.start(machine_id)
        await customer.reaches(machine_id, State.STARTED)
        await customer.restart(machine_id)
        await worker.at_rest()
        await customer.update(machine_id, MachineConfig(image="hawker/hello", env={"A": "1"}))
        await worker.at_rest()
        await customer.signal(machine_id, "SIGUSR1")
        await customer.stop(machine_id)
        await worker.at_rest()
        assert [each.id for each in await customer.machines()] == [machine_id]
        exits = exits_of(await customer.machine(machine_id))
        assert [exit.requested_stop for exit in exits][:2] == [True, True]
        await customer.destroy(machine_id)
        await customer.reaches(machine_id, State.DESTROYED)
        assert [run.flow for run in await customer.runs(machine_id)][-1] == "create"
        await customer.prune()
        assert worker.parts.deps.images.find("hawker/hello") is None


async def test_the_image_can_be_pulled_and_has_no_command(tmp_path: Path) -> None:
    reference = write_commandless_image(tmp_path / "image")
    cache = ImageCache(tmp_path / "images", ImageSettings(allow_local=True, block=BlockChoice.NONE), SystemClock())
    await cache.open()
    try:
        image = await cache.pull(reference)
    finally:
        await cache.aclose()
    assert (image.config.entrypoint, image.config.cmd, len(image.layers)) == ((), (), 1)
