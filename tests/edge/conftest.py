"""What the edge's tests share: hosts that are played."""

from collections.abc import AsyncIterator

import pytest

from hawker.feed import GatePlace
from tests.edge.edge_kit import KEY, PlayedHost, played_host


@pytest.fixture(autouse=True)
def patient_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges wait for each other, however busy this host is."""
    for each in ("hops.REACH_S", "hops.ANSWER_S", "datagram_hops.ANSWER_S"):
        monkeypatch.setattr(f"hawker.edge.{each}", 60.0)


@pytest.fixture
async def host() -> AsyncIterator[PlayedHost]:
    async with played_host() as host:
        yield host


@pytest.fixture
async def far() -> AsyncIterator[PlayedHost]:
    async with played_host() as host:
        yield host


@pytest.fixture
async def gate(host: PlayedHost, far: PlayedHost) -> GatePlace:
    """Of the far host; both are of one cluster."""
    await host.join("a" * 8, KEY)
    return await far.join("b" * 8, KEY)
