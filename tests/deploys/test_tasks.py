"""Machines beside an app's own."""

from typing import Any

import pytest

from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from tests.deploys.deploying import WEB, abort, deploy, ended, machines

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


async def test_a_release_command_that_runs_goes_when_its_deploy_is_ended(worker: SimWorker) -> None:
    await deploy(worker, {"deploy": {"release_command": "sleep 900"}})
    await worker.parts.deps.clock.sleep(60)
    assert len(await machines(worker)) == 1
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    assert await machines(worker) == []


async def test_a_seed_command_runs_for_an_app_that_has_no_complete_release(worker: SimWorker) -> None:
    seeded = {"deploy": {"seed_command": "exit 2"}}
    await deploy(worker, seeded)
    assert "the seed command failed, with status 2" in (await ended(worker)).error
    await deploy(worker)
    assert (await ended(worker)).status == "complete"
    await deploy(worker, seeded)
    assert (await ended(worker)).status == "complete"


@pytest.mark.parametrize(
    "definition",
    [
        {"machine_checks": [{"command": "exit 4"}]},
        {"http_service": {"internal_port": 8080, "machine_checks": [{"command": "exit 4"}]}},
    ],
    ids=["of the file", "of a service"],
)
async def test_a_machine_check_that_fails_takes_the_deploy_back(worker: SimWorker, definition: dict[str, Any]) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, definition)
    found = await ended(worker)
    assert found.status == "rolled_back" and "machine check 1 failed, with status 4" in found.error
    assert [(each.id, each.state) for each in await machines(worker)] == [(before.id, State.STARTED)]


async def test_a_machine_check_runs_once_for_each_group_and_is_told_the_address_of_its_first_machine(
    worker: SimWorker,
) -> None:
    await deploy(worker, WEB | {"machine_checks": [{"command": "sleep 5"}]})
    told: dict[str, str] = {}
    while len(told) < 2:
        await worker.parts.deps.clock.sleep(0.5)
        for each in await machines(worker):
            if each.config is not None and "FLY_TEST_MACHINE_IP" in (each.config.env or {}):
                told[each.id] = (each.config.env or {})["FLY_TEST_MACHINE_IP"]
    assert (await ended(worker)).status == "complete"
    left = await machines(worker)
    assert sorted(told.values()) == sorted(each.private_ip for each in left) and told.keys().isdisjoint(
        each.id for each in left
    )
