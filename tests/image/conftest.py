"""Fixtures of the image room's tests."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.image.reach import PullReach
from hawker.image.transport import RegistryTransport, new_session
from tests.fixtures.debian_image import debian_image
from tests.fixtures.registry import private_registry, registry
from tests.image.fake_registry import FakeRegistry, fake_registry

__all__ = ["debian_image", "private_registry", "registry"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 8 MiB, for tests that are marked `root`."""
    with mounted("tmpfs", tmp_path / "small", "size=8m,mode=700") as place:
        yield place


@pytest.fixture
def bare_filesystem(tmp_path: Path) -> Iterator[Path]:
    """One without extended attributes, for tests that are marked `root`."""
    with mounted("ramfs", tmp_path / "bare", "mode=700") as place:
        yield place


@contextmanager
def mounted(kind: str, place: Path, options: str) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", kind, "-o", options, "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    """A registry in this process, open to all until it is told otherwise."""
    async with fake_registry() as running:
        yield running


@pytest.fixture
async def transport() -> AsyncIterator[RegistryTransport]:
    session = new_session(PullReach())
    yield RegistryTransport(lambda: session, PullReach())
    await session.close()
