"""The commandless image is one that the cache takes, and names nothing to run."""

from pathlib import Path

import pytest

from hawker.chaos.sample_image import write_commandless_image
from hawker.clock import SystemClock
from hawker.image.cache import ImageCache
from hawker.image.limits import BlockChoice, ImageSettings

pytestmark = pytest.mark.anyio


async def test_the_image_can_be_pulled_and_has_no_command(tmp_path: Path) -> None:
    reference = write_commandless_image(tmp_path / "image")
    cache = ImageCache(tmp_path / "images", ImageSettings(block=BlockChoice.NONE), SystemClock())
    await cache.open()
    try:
        image = await cache.pull(reference)
    finally:
        await cache.aclose()
    assert (image.config.entrypoint, image.config.cmd, len(image.layers)) == ((), (), 1)
