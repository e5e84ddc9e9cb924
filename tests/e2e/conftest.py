"""What the end-to-end tests share: the node that most facts are about, one for each file."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from hawker.api.client import Client
from hawker.chaos.hostile.python_image import write_python_image
from tests.e2e.images import toolbox, write_layout
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.fixtures.debian_image import debian_image
from tests.fixtures.parts import ImageParts
from tests.fixtures.registry import private_registry, registry

__all__ = ["debian_image", "private_registry", "registry"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node"), "--ephemeral") as node:
        yield node


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[Client]:
    async with node.client() as client:
        yield client


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
async def shop(client: Client, _numbers: Iterator[int]) -> AsyncIterator[Shop]:
    """An app of the test's own, gone with its machines at the end."""
    shop = await Shop(client, f"shop-{next(_numbers)}").open()
    yield shop
    await shop.close()


@pytest.fixture(scope="session")
def python_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of an image with Python."""
    archive = tmp_path_factory.mktemp("python") / "image.tar"
    write_python_image(archive)
    return archive


@pytest.fixture(scope="session")
def toolbox_parts(tmp_path_factory: pytest.TempPathFactory) -> ImageParts:
    """An image with a shell."""
    return toolbox(tmp_path_factory.mktemp("toolbox") / "root")


@pytest.fixture(scope="session")
def toolbox_image(tmp_path_factory: pytest.TempPathFactory, toolbox_parts: ImageParts) -> str:
    """The same as a layout on the node's host; its reference."""
    return write_layout(tmp_path_factory.mktemp("layout"), toolbox_parts)
