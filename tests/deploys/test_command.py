"""The release command."""

import pytest

from hawker.sim.node.sim_worker import SimWorker
from tests.deploys.deploying import deploy, ended, machines

pytestmark = pytest.mark.anyio


async def test_a_release_command_that_fails_touches_no_machine(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, {"deploy": {"release_command": "exit 1"}})
    found = await ended(worker)
    assert found.status == "rolled_back" and "the release command failed, with status 1" in found.error
    assert [each.version for each in await machines(worker)] == [before.version]


async def test_a_release_command_that_takes_too_long_is_ended(worker: SimWorker) -> None:
    await deploy(worker, {"deploy": {"release_command": "sleep 900", "release_command_timeout": "20s"}})
    assert "timed out after 20 s" in (await ended(worker)).error
    assert await machines(worker) == []
