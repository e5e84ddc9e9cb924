"""Lists whole, in the name of one caller, on a whole worker whose time is simulated."""

import pytest

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.release import (
    CREATE_RELEASE,
    UPDATE_RELEASE,
    CreateReleaseRequest,
    ReleaseParams,
    UpdateReleaseRequest,
)
from hawker.api.grant import Everything, Grant
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import Forbidden, NotFound
from hawker.flyfront.asking import Asking
from hawker.permission import Attempt
from hawker.sim.node.sim_worker import APP, SimWorker, handlers_of_one
from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]

pytestmark = pytest.mark.anyio


class OnlyAcme(Everything):
    """May reach the apps of one organization."""

    def check(self, attempt: Attempt) -> None:
        if not self.permits(attempt):
            raise Forbidden("not for you")

    def permits(self, attempt: Attempt) -> bool:
        return attempt.org in (None, "acme") and attempt.app != APP


def asking(worker: SimWorker, grant: Grant) -> Asking:
    outer = Call(params=NoParams(), query=NoQuery(), body=None, grant=grant, request_id="01R")
    return Asking(OnBehalf(handlers_of_one(worker.parts)), outer)


async def test_apps_and_organizations_are_those_that_the_token_may_read(worker: SimWorker) -> None:
    for number in range(3):
        await worker.api.call(CREATE_APP, body=CreateAppRequest(name=f"a{number}", org_slug="acme"))
    every = asking(worker, Everything())
    assert {app.name async for app in every.apps()} == {APP, "a0", "a1", "a2"}
    assert {app.name async for app in every.apps("acme")} == {"a0", "a1", "a2"}
    assert await every.organizations() == ["acme", "personal"]
    narrow = asking(worker, OnlyAcme())
    assert {app.name async for app in narrow.apps()} == {"a0", "a1", "a2"}
    with pytest.raises(Forbidden):
        await narrow.app(APP)
    with pytest.raises(NotFound, match="Could not find App"):
        await narrow.app("nobody")


async def test_the_current_release_is_the_newest_that_came_to_its_end_else_the_newest(worker: SimWorker) -> None:
    every, here = asking(worker, Everything()), AppParams(app_name=APP)
    assert await every.current_release(APP) is None
    for _ in range(2):
        await worker.api.call(CREATE_RELEASE, params=here, body=CreateReleaseRequest(image="x"))
    newest = await every.current_release(APP)
    assert newest is not None and newest.version == 2
    params = ReleaseParams(app_name=APP, version="1")
    await worker.api.call(UPDATE_RELEASE, params=params, body=UpdateReleaseRequest(status="complete"))
    whole = await every.current_release(APP)
    assert whole is not None and whole.version == 1
