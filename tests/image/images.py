"""Small images that run on this host, and a cache to pull them into."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hawker.clock import ManualClock
from hawker.image.cache import ImageCache
from hawker.image.limits import ImageSettings
from hawker.image.platform import host_platform
from tests.fixtures.parts import ImageParts, layer, tar


def architecture() -> str:
    return host_platform().architecture


def small(name: str, content: bytes = b"x") -> ImageParts:
    """One layer with one file, which is its command."""
    return ImageParts([layer(tar((name, content)))], {"Cmd": [f"/{name}"]}, architecture())


@asynccontextmanager
async def opened_cache(folder: Path, settings: ImageSettings | None = None) -> AsyncIterator[ImageCache]:
    """Below `folder/images`; its sample program is no program."""
    program = folder / "hello"
    program.write_bytes(b"\x7fELF not really")
    cache = ImageCache(folder / "images", settings or ImageSettings(), ManualClock(), hello=lambda: program)
    await cache.open()
    try:
        yield cache
    finally:
        await cache.aclose()
