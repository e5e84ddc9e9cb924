"""Every agent that the suite judges, over both protocols. Ours always; a real one when `CORROSION_URL` names it (its
schema must have `schema.sql`, its bearer token goes into `CORROSION_TOKEN`).
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.catalog.conformance.agents import Agent, Ours, Theirs
from tests.catalog.served import served

SCHEMA = (Path(__file__).parent / "schema.sql").read_text()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that a node runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(params=["hawker-h1", "hawker-h2c", "corrosion-h1", "corrosion-h2c"])
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Agent]:
    which, protocol = request.param.split("-")
    if which == "hawker":
        async with served(tmp_path, schemas=[SCHEMA]) as one:
            yield Ours(one, protocol)
        return
    url = os.environ.get("CORROSION_URL")
    if not url:
        pytest.skip("CORROSION_URL names no agent")
    theirs = Theirs(url, protocol, os.environ.get("CORROSION_TOKEN"))
    await theirs.clear()
    yield theirs
