"""Fixtures of the host's tests: a node's network that is taken down whatever happens."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.host.network import NodeNetwork
from hawker.ids import NodeId


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[NodeNetwork]:
    """A booted node of its own."""
    node = NodeNetwork(NodeId(secrets.token_hex(4)), tmp_path / "netns")
    await node.boot()
    yield node
    await node.remove_node()
