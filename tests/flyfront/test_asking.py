"""Lists whole, in the name of one caller, on a whole worker whose time is simulated."""

import anyio
import pytest

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.flyctl import GraphqlRequest
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
from hawker.errors import Forbidden, NotFound, OverShare
from hawker.fair.threads import on_behalf_of
from hawker.fair.turns import Share, Turns
from hawker.flyfront.asking import Asking
from hawker.flyfront.operations import GraphqlHandlers
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
    for there in ("acme", "personal"):
        await every.check_organization(there)
    with pytest.raises(NotFound, match="no app here"):
        await every.check_organization("nobody")
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


async def test_one_caller_has_so_many_operations_under_way(worker: SimWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = GraphqlHandlers(OnBehalf(handlers_of_one(worker.parts)), lambda kind: None)
    share = Share(name="operations", total=1, each=1, waiting=1, key="caller", over="refused")
    monkeypatch.setattr(handlers, "_turns", Turns(share))
    answered, refused = 0, 0

    async def ask() -> None:
        nonlocal answered, refused
        body = GraphqlRequest(query="{ platform { requestRegion } }")
        try:
            with on_behalf_of("mallory"):
                await handlers.graphql(
                    Call(params=NoParams(), query=NoQuery(), body=body, grant=Everything(), request_id="01R")
                )
            answered += 1
        except OverShare:
            refused += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert (answered, refused) == (2, 3)
