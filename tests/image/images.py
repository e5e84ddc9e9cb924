"""Small images that run on this host, and a cache to pull them into."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hawker.clock import Clock, ManualClock
from hawker.image.blobs import BlobReaders, BlobStore, ImageReader
from hawker.image.cache import ImageCache
from hawker.image.download import Arrivals
from hawker.image.limits import ImageSettings
from hawker.image.manifest import host_platform
from tests.fixtures.parts import ImageParts, layer, tar


def architecture() -> str:
    return host_platform().architecture


def small(name: str, content: bytes = b"x") -> ImageParts:
    """One layer with one file, which is its command."""
    return ImageParts([layer(tar((name, content)))], {"Cmd": [f"/{name}"]}, architecture())


@asynccontextmanager
async def opened_cache(
    folder: Path, settings: ImageSettings | None = None, clock: Clock | None = None
) -> AsyncIterator[ImageCache]:
    """Below `folder/images`; its sample program is no program."""
    os.makedirs(folder, exist_ok=True)
    program = folder / "hello"
    program.write_bytes(b"\x7fELF not really")
    cache = ImageCache(
        folder / "images", settings or ImageSettings(allow_local=True), clock or ManualClock(), hello=lambda: program
    )
    await cache.open()
    try:
        yield cache
    finally:
        await cache.aclose()


def arrivals(store: BlobStore, org: str = "") -> Arrivals:
    """For an organization whose source gives it what is its own; else for the node."""
    readers = BlobReaders(store.folder.parent.parent, store)
    readers.open()
    return Arrivals(store, readers, ImageReader(org), ImageReader(org))
