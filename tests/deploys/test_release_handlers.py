"""Releases that clients record, beside those of deploys."""

import pytest

from hawker.api.contract.release import UPDATE_RELEASE, ReleaseParams, UpdateReleaseRequest
from hawker.errors import Conflict, NotFound
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.deploys.deploying import deploy, ended

pytestmark = pytest.mark.anyio


async def test_a_release_of_a_deploy_under_way_is_moved_by_nobody_else(worker: SimWorker) -> None:
    await deploy(worker)
    body = UpdateReleaseRequest(status="failed")
    with pytest.raises(Conflict, match="is a deploy under way"):
        await worker.api.call(UPDATE_RELEASE, params=ReleaseParams(app_name=APP, version="1"), body=body)
    assert (await ended(worker)).status == "complete"
    with pytest.raises(NotFound):
        await worker.api.call(UPDATE_RELEASE, params=ReleaseParams(app_name=APP, version="x"), body=body)
