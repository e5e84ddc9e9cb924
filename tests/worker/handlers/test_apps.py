import pytest

from hawker.api.contract.app import (
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    App,
    AppParams,
    CreateAppRequest,
    DeleteAppQuery,
    ListAppsQuery,
)
from hawker.errors import NameTaken, NotFound, Unprocessable, WrongState
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def _create(worker: SimWorker, **body: object) -> App:
    return await worker.api.call(CREATE_APP, body=CreateAppRequest(**body))  # type: ignore[arg-type]


async def test_an_app_is_shown_with_its_organization_and_machines(worker: SimWorker) -> None:
    app = await _create(worker, app_name="shop", org_slug="acme", network="back")
    assert (app.name, app.status, app.organization.slug, app.network) == ("shop", "pending", "acme", "back")
    await worker.create(app="shop")
    shown = await worker.api.call(GET_APP, params=AppParams(app_name="shop"))
    assert (shown.id, shown.status, shown.machine_count) == (app.id, "deployed", 1)


async def test_a_name_is_taken_unless_the_same_request_comes_again(worker: SimWorker) -> None:
    first = await _create(worker, name="shop", idempotency_key="key")
    assert (await _create(worker, name="shop", idempotency_key="key")).id == first.id
    for key in (None, "other"):
        with pytest.raises(NameTaken, match="Validation failed: Name has already been taken"):
            await _create(worker, name="shop", idempotency_key=key)


async def test_an_app_needs_a_good_name(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="name is required"):
        await _create(worker)
    with pytest.raises(Unprocessable):
        await _create(worker, name="../up")


async def test_apps_are_listed_by_organization_and_in_pages(worker: SimWorker) -> None:
    for number in range(3):
        await _create(worker, name=f"shop-{number}", org_slug="acme")
    first = await worker.api.call(LIST_APPS, query=ListAppsQuery(org_slug="acme", limit=2))
    second = await worker.api.call(LIST_APPS, query=ListAppsQuery(org_slug="acme", limit=2, cursor=first.next_cursor))
    assert [app.name for app in (*first.apps, *second.apps)] == ["shop-0", "shop-1", "shop-2"]
    assert first.total_apps == 3 and second.next_cursor is None


async def test_no_app_of_this_node_has_a_role(worker: SimWorker) -> None:
    await _create(worker, name="shop")
    assert (await worker.api.call(LIST_APPS, query=ListAppsQuery(app_role="builder"))).total_apps == 0


async def test_an_app_with_machines_goes_with_them_unless_they_are_to_keep_it(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    await worker.started()
    leased = await worker.create(order={"lease_ttl": 60})
    here = AppParams(app_name=APP)
    with pytest.raises(WrongState, match="still has 2 machines"):
        await worker.api.call(DELETE_APP, params=here, query=DeleteAppQuery(force=False))
    await worker.api.call(DELETE_APP, params=here)
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(GET_APP, params=here)
    with pytest.raises(NotFound, match="app not found"):
        await worker.get(leased.id)
    assert worker.machines() == [] and stall.host.machines() == []
    await worker.at_rest()
    check_at_rest(stall)


async def test_an_app_that_does_not_exist_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(GET_APP, params=AppParams(app_name="nosuch"))
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(DELETE_APP, params=AppParams(app_name="nosuch"))
