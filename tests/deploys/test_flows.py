"""Deploys on a whole worker, whose time is simulated: what becomes of an app's machines."""

from typing import Any

import anyio
import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    CREATE_DEPLOY,
    GET_DEPLOY,
    CreateDeployRequest,
    Deploy,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.machine import LIST_MACHINES, Machine
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio

HELLO = "hawker/hello"
WEB = {"processes": {"web": "serve", "jobs": "work"}}


async def deploy(worker: SimWorker, definition: dict[str, Any] | None = None, **body: Any) -> Deploy:
    request = CreateDeployRequest(definition=definition or {}, image=body.pop("image", HELLO), **body)
    return await worker.api.call(CREATE_DEPLOY, params=AppParams(app_name=APP), body=request)


async def ended(worker: SimWorker, version: int | str = "latest") -> Deploy:
    """The deploy once it has ended."""
    params = DeployParams(app_name=APP, version=str(version))
    found = await worker.api.call(GET_DEPLOY, params=params)
    with anyio.fail_after(3600):
        while found.ended_at is None:
            found = await worker.api.call(
                GET_DEPLOY, params=params, query=GetDeployQuery(after=found.serial, wait=30.0)
            )
    return found


async def machines(worker: SimWorker) -> list[Machine]:
    return list((await worker.api.call(LIST_MACHINES, params=AppParams(app_name=APP))).items)


def groups(found: list[Machine]) -> list[tuple[str, str, State]]:
    shown = []
    for each in found:
        assert each.config is not None and each.config.metadata is not None
        metadata = each.config.metadata
        shown.append((metadata["fly_process_group"], metadata["fly_release_version"], each.state))
    return sorted(shown)


async def test_a_first_deploy_makes_a_machine_for_each_group(worker: SimWorker) -> None:
    begun = await deploy(worker, WEB)
    assert (begun.version, begun.status, [slot.kind for slot in begun.slots]) == (1, "running", ["create", "create"])
    assert (await ended(worker)).status == "complete"
    assert groups(await machines(worker)) == [("jobs", "1", State.STARTED), ("web", "1", State.STARTED)]


async def test_the_next_deploy_updates_the_machines_that_are_there(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    before = {each.id for each in await machines(worker)}
    await deploy(worker, WEB | {"env": {"A": "2"}})
    found = await ended(worker)
    assert (found.version, found.status) == (2, "complete")
    after = await machines(worker)
    assert {each.id for each in after} == before
    assert groups(after) == [("jobs", "2", State.STARTED), ("web", "2", State.STARTED)]
    assert all(each.config and each.config.env and each.config.env["A"] == "2" for each in after)
