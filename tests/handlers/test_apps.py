import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.app import (
    ASSIGN_IP,
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    LIST_IPS,
    RELEASE_IP,
    App,
    AppParams,
    AssignIpRequest,
    CreateAppRequest,
    DeleteAppQuery,
    IpNetwork,
    IpParams,
    ListAppsQuery,
)
from hawker.api.contract.app_file import (
    APP_FILE_PEER_ROUTES,
    APP_FILE_ROUTES,
    GET_APP_FILE,
    AppFile,
    AppFileParams,
    AppFileQuery,
    HandedFileParams,
    HandedFileQuery,
)
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.clock import SystemClock
from hawker.errors import Forbidden, NameTaken, NotFound, NotServed, QuotaExceeded, Unprocessable, WrongState
from hawker.handlers.apps import AppFileHandlers, IpHandlers
from hawker.permission import Attempt
from hawker.quota.quotas import Quotas, UsageCount
from hawker.record.org import QuotaRule
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import HOST_ADDRESSES, MemoryWorld
from hawker.worker.apps import AppFiles
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


CONTENT = b"x" * 3_000_000
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Desk:
    def __init__(self, worker: SimWorker, place: Path) -> None:
        self.files = AppFiles(place / "files", worker.store, SystemClock(), lambda: 1 << 40)
        self.quotas = Quotas(worker.store, worker.parts.deps.clock, UsageCount(0, 0, self.files.bytes_of))
        self.handlers = AppFileHandlers(worker.store, worker.parts.apps, self.quotas, self.files)

    async def put(self, app: str = APP, content: bytes = CONTENT, digest: str = DIGEST) -> AppFile:
        async def data() -> AsyncIterator[bytes]:
            yield content

        params, query = AppFileParams(app_name=app, digest=digest), AppFileQuery(size=len(content))
        return await self.handlers.put(_call(params, query), data())

    async def get(self, app: str = APP) -> AppFile:
        return await self.handlers.get(_call(AppFileParams(app_name=app, digest=DIGEST), NoQuery()))

    async def hand(self, app_id: str, digest: str = DIGEST, **query: int) -> bytes:
        params = HandedFileParams(app_id=app_id, digest=digest)
        return await self.handlers.hand(_call(params, HandedFileQuery(**query)))


def _call(params: Any, query: Any) -> Call[Any, Any, Any]:
    return Call(params=params, query=query, body=None, grant=Everything(), request_id="1")


@pytest.fixture
def desk(worker: SimWorker, tmp_path: Path) -> Desk:
    return Desk(worker, tmp_path)


async def test_a_file_is_there_for_its_app_and_no_other(worker: SimWorker, desk: Desk) -> None:
    await worker.app("other")
    with pytest.raises(NotFound, match="was not uploaded"):
        await desk.get()
    assert await desk.put() == await desk.get() == AppFile(digest=DIGEST, size=len(CONTENT))
    with pytest.raises(NotFound, match="was not uploaded for app 'other'"):
        await desk.get("other")
    with pytest.raises(NotFound, match="app not found"):
        await desk.put("nobody")


async def test_pieces_are_handed_by_the_app_s_id(worker: SimWorker, desk: Desk) -> None:
    await desk.put()
    app_id = worker.parts.apps.get(worker.store, APP).id
    assert await desk.hand(app_id, offset=1, count=5) == b"xxxxx"
    assert await desk.hand(app_id, offset=len(CONTENT)) == b""
    for wrong in ("0" * 16, APP):
        with pytest.raises(NotFound):
            await desk.hand(wrong)
    for wrong in ("..", "", "a/b"):
        with pytest.raises(Unprocessable):
            await desk.hand(wrong)
    with pytest.raises(Unprocessable):
        await desk.hand(app_id, "sha256:../../../token")


async def test_files_count_against_the_quota_of_their_app(worker: SimWorker, desk: Desk) -> None:
    await desk.quotas.put(f"app/{APP}", QuotaRule(disk_mb=5), "root")
    await desk.put()
    assert desk.quotas.used(worker.store, f"app/{APP}").disk_mb == 3
    await desk.put()  # it is there
    other = b"y" * len(CONTENT)
    with pytest.raises(QuotaExceeded, match="disk_mb: has 3, asked for 3 more, may have 5"):
        await desk.put(content=other, digest=f"sha256:{hashlib.sha256(other).hexdigest()}")


async def test_a_node_without_such_files_says_so(worker: SimWorker) -> None:
    params = AppFileParams(app_name=APP, digest=DIGEST)
    with pytest.raises(NotServed):
        await worker.api.call(GET_APP_FILE, params=params)
    file = {"guest_path": "/x", "digest": DIGEST, "size": 7}
    with pytest.raises(NotServed):
        await worker.create(files=[file])


async def test_all_calls_about_files_are_answered(desk: Desk) -> None:
    handlers = Handlers()
    handlers.add(desk.handlers)
    assert handlers.missing((*APP_FILE_ROUTES, *APP_FILE_PEER_ROUTES)) == ()


HERE = AppParams(app_name=APP)


class AppOnly(Everything):
    """The grant of a token that is good for apps and for no org."""

    def check(self, attempt: Attempt) -> None:
        if attempt.app is None:
            raise Forbidden("not for you")


async def assigned(worker: SimWorker, **given: Any) -> Any:
    return await worker.api.call(ASSIGN_IP, params=HERE, body=AssignIpRequest(**given))


async def test_an_address_is_given_listed_and_taken(worker: SimWorker) -> None:
    made = await assigned(worker, type="shared_v4", region="", network="", org_slug="", service_name="")
    assert (made.ip, made.type, made.shared, made.region) == (HOST_ADDRESSES[4], "shared_v4", True, "global")
    assert (await worker.api.call(LIST_IPS, params=HERE)).ips == (made,)
    await worker.api.call(RELEASE_IP, params=IpParams(app_name=APP, ip=made.ip))
    assert (await worker.api.call(LIST_IPS, params=HERE)).ips == ()


async def test_a_private_one_says_where_it_is(worker: SimWorker) -> None:
    assert (await assigned(worker, type="private_v6")).network == IpNetwork(name="default", org_slug="personal")


async def test_an_app_that_is_not_there_has_none(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_IPS, params=AppParams(app_name="ghost"))


async def test_a_network_of_another_org_needs_a_right_there(worker: SimWorker) -> None:
    handlers = IpHandlers(worker.store, worker.parts.apps, worker.parts.ips)

    def call(org: str) -> Call[Any, Any, Any]:
        body = AssignIpRequest(type="private_v6", org_slug=org)
        return Call(params=HERE, query=ASSIGN_IP.query(), body=body, grant=AppOnly(), request_id="r")

    await handlers.assign(call("personal"))
    with pytest.raises(Forbidden):
        await handlers.assign(call("acme"))
