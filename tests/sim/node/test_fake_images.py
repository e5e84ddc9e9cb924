import pytest

from hawker.errors import Unavailable
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.fake_images import FakeImages, FakeRegistry

pytestmark = pytest.mark.anyio


async def test_an_image_is_here_once_it_is_built_and_outlives_the_daemon() -> None:
    registry, clock = FakeRegistry(), LoopClock()
    registry.pull_s = 30
    images, began = FakeImages(registry, clock), clock.monotonic()
    await images.open()
    resolved = await images.resolve("hawker/hello")
    assert images.find(resolved.digest) is None
    await images.fetch(resolved)
    image = await images.build(resolved)
    assert clock.monotonic() - began == 30
    images.mark_used(resolved.digest)
    assert FakeImages(registry, clock).find(resolved.digest) == image


async def test_pulls_fail_as_often_as_asked() -> None:
    registry = FakeRegistry()
    registry.fails = 1
    images = FakeImages(registry, LoopClock())
    resolved = await images.resolve("hawker/hello")
    with pytest.raises(Unavailable):
        await images.fetch(resolved)
    await images.fetch(resolved)
