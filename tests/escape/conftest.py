"""A prison for every attempt."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.ids import NodeId
from tests.conftest import Mark
from tests.runtime.vmm.cells import Prison, prison


@pytest.fixture
async def cells(tmp_path: Path, node_id: NodeId, nothing_stray: Mark) -> AsyncIterator[Prison]:
    nothing_stray(node_id)
    async with prison(tmp_path, node_id) as made:
        yield made
