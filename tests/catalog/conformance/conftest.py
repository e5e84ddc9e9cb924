"""Every agent that the suite judges, over both protocols: our own server, a played Corrosion agent, and a real one
where `CORROSION_URL` names it (its schema must have `schema.sql`, its bearer token goes into `CORROSION_TOKEN`).
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.catalog.conformance.agents import Agent
from tests.catalog.played.agent import PlayedAgent
from tests.catalog.served import NODE, served

SCHEMA = (Path(__file__).parent / "schema.sql").read_text()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that a node runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(params=["hawker-h1", "hawker-h2c", "played-h1", "played-h2c", "corrosion-h1", "corrosion-h2c"])
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Agent]:
    which, protocol = request.param.split("-")
    if which == "hawker":
        async with served(tmp_path, schemas=[SCHEMA]) as one:
            yield Agent(one.url, protocol, NODE, corrosion=False)
        return
    if which == "played":
        async with PlayedAgent(tmp_path, [SCHEMA]).running() as url:
            yield Agent(url, protocol, "feedbeef", corrosion=True)
        return
    real = os.environ.get("CORROSION_URL")
    if not real:
        pytest.skip("CORROSION_URL names no agent")
    theirs = Agent(real, protocol, "feedbeef", os.environ.get("CORROSION_TOKEN"), corrosion=True)
    await theirs.clear()
    yield theirs
