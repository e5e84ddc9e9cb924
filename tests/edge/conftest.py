"""What the edge's tests share: a host that is played."""

from collections.abc import AsyncIterator

import pytest

from tests.edge.edge_kit import PlayedHost, played_host


@pytest.fixture
async def host() -> AsyncIterator[PlayedHost]:
    async with played_host() as host:
        yield host
