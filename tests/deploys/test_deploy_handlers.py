"""Words to a deploy that is under way."""

from typing import Any

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    GET_DEPLOY,
    LIST_DEPLOYS,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.release import CREATE_RELEASE, CreateReleaseRequest
from hawker.deploys.deploy_table import LAST_STAGE, DeployTable
from hawker.errors import Conflict, NotFound, WrongState
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.deploys.deploying import WEB, deploy, ended, groups, machines

pytestmark = pytest.mark.anyio


async def test_a_paused_deploy_begins_with_no_machine_until_it_is_resumed(worker: SimWorker) -> None:
    begun = await deploy(worker, WEB)
    params = DeployParams(app_name=APP, version=str(begun.version))
    assert (await worker.api.call(PAUSE_DEPLOY, params=params)).status == "paused"
    await worker.parts.deps.clock.sleep(3600)
    assert len(await machines(worker)) <= 2
    assert (await worker.api.call(GET_DEPLOY, params=params)).status == "paused"
    await worker.api.call(RESUME_DEPLOY, params=params)
    assert (await ended(worker)).status == "complete"
    with pytest.raises(WrongState, match="has ended: complete"):
        await worker.api.call(PAUSE_DEPLOY, params=params)


@pytest.mark.parametrize(("keep", "status", "releases"), [(False, "rolled_back", ["1"]), (True, "interrupted", ["2"])])
async def test_an_abort_takes_back_or_keeps(worker: SimWorker, keep: bool, status: str, releases: list[str]) -> None:
    await deploy(worker)
    await ended(worker)
    begun = await deploy(worker, {"hawker": {"deploy": {"smoke": "10m"}}})
    params = DeployParams(app_name=APP, version=str(begun.version))
    found = begun
    while found.slots[0].state != "proving":
        found = await worker.api.call(GET_DEPLOY, params=params, query=GetDeployQuery(after=found.serial, wait=30.0))
    await worker.api.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest(keep=keep))
    assert (await ended(worker)).status == status
    assert [release for _, release, _ in groups(await machines(worker))] == releases


@pytest.mark.parametrize("fields", [{"stage": LAST_STAGE}, {"stage": "", "no_way_back": True}])
async def test_nothing_can_be_said_any_more_while_old_machines_go(worker: SimWorker, fields: dict[str, Any]) -> None:
    """Also where an older version wrote that down."""
    begun = await deploy(worker, WEB)
    params = DeployParams(app_name=APP, version=str(begun.version))
    table = DeployTable(worker.store, worker.parts.deps.clock)
    await worker.store.write(lambda tx: table.change(tx, APP, begun.version, **fields))
    for route in (PAUSE_DEPLOY, RESUME_DEPLOY):
        with pytest.raises(WrongState, match="old machines, which go now"):
            await worker.api.call(route, params=params)
    with pytest.raises(WrongState, match="old machines, which go now"):
        await worker.api.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest())


async def test_a_second_deploy_is_refused_while_one_is_under_way(worker: SimWorker) -> None:
    await deploy(worker)
    with pytest.raises(Conflict, match="is under way"):
        await deploy(worker)
    with pytest.raises(Conflict, match="is under way"):
        await worker.api.call(CREATE_RELEASE, params=AppParams(app_name=APP), body=CreateReleaseRequest(image="x"))
    await ended(worker)


async def test_deploys_are_listed_newest_first_and_the_newest_is_the_latest(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="never deployed"):
        await ended(worker)
    for _ in range(2):
        await deploy(worker)
        await ended(worker)
    listed = (await worker.api.call(LIST_DEPLOYS, params=AppParams(app_name=APP))).deploys
    assert [(each.version, each.status, each.slots) for each in listed] == [(2, "complete", ()), (1, "complete", ())]
    for version in ("3", "x", "-1"):
        with pytest.raises(NotFound):
            await worker.api.call(GET_DEPLOY, params=DeployParams(app_name=APP, version=version))
