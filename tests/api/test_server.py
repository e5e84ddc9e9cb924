import logging
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_network
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api import server as server_module
from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, LIST_APPS
from hawker.api.contract.image import PULL_IMAGE
from hawker.api.contract.machine import CREATE_MACHINE
from hawker.api.grant import ROOT, Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.listener import listening
from hawker.api.route import AnyRoute, Call, declared_errors
from hawker.api.routes import ROUTES, UNSERVED
from hawker.api.server import ANY_METHOD, MAX_BODY_BYTES, Dispatch, Found, Server, WrongMethod
from hawker.clock import SystemClock
from hawker.errors import CannotStart, Fault, Forbidden, HawkerError, LeaseHeld, NoRoom, TooLarge, Unauthorized
from hawker.fair.table import CALLS
from hawker.log import Secret
from hawker.permission import Action
from tests.api.samples import params_of, sample
from tests.api.serving import NARROW, TOKEN, Fake, Nothing, Served, authenticate, served, use


def _tree() -> Dispatch[str]:
    tree: Dispatch[str] = Dispatch()
    for route in ROUTES:
        tree.add(route.method, route.path, route.name)
        for alias in route.aliases:
            tree.add(alias.method, alias.path, route.name)
    for unserved in UNSERVED:
        tree.add(ANY_METHOD, unserved.path, "unserved")
    return tree


TREE = _tree()


def _find(method: str, path: str) -> tuple[str, Mapping[str, str]]:
    found = TREE.find(method, path)
    assert isinstance(found, Found), f"{method} {path}: {found}"
    return found.target, found.params


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_found_by_its_own_path_with_and_without_a_slash_at_the_end(route: AnyRoute) -> None:
    values = {name: f"{name}-value" for name in route.params.__struct_fields__}
    path = route.path.format(**values)
    assert _find(route.method, path) == _find(route.method, f"{path}/") == (route.name, values)


def test_a_parameter_may_hold_an_encoded_slash() -> None:
    assert _find("GET", "/v1/apps/a/machines/b/metadata/x%2Fy%25") == (
        "get_metadata",
        {"app_name": "a", "machine_id": "b", "key": "x/y%"},
    )


def test_a_parameter_is_never_empty() -> None:
    assert TREE.find("GET", "/v1/apps//machines") is None


def test_another_method_is_told_from_another_path() -> None:
    assert TREE.find("PUT", "/v1/apps") == WrongMethod(("GET", "POST"))
    assert TREE.find("GET", "/v1/nothing") is None
    assert TREE.find("GET", "/v1") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/tokens/kms"),
        ("GET", "/v1/tokens/oidc"),
        ("DELETE", "/v1/tokens/oidc"),
        ("POST", "/v1/tokens/oidc"),
    ],
)
def test_a_path_not_served_is_found_with_any_method(method: str, path: str) -> None:
    assert _find(method, path)[0] == "unserved"


def test_two_targets_of_one_place_are_refused() -> None:
    with pytest.raises(AssertionError, match="two routes for GET /v1/apps"):
        _tree().add("GET", "/v1/apps", "again")


def test_a_literal_wins_over_a_parameter() -> None:
    tree: Dispatch[str] = Dispatch()
    tree.add("GET", "/a/{b}", "parameter")
    tree.add("GET", "/a/c", "literal")
    assert tree.find("GET", "/a/c") == Found("literal", {})
    assert tree.find("GET", "/a/d") == Found("parameter", {"b": "d"})


@given(st.sampled_from(["GET", "POST", "HEAD", ""]), st.text(alphabet="/v1apsmchine%2F.{}*?", max_size=40))
def test_any_path_finds_something_or_nothing(method: str, path: str) -> None:
    TREE.find(method, path)


pytestmark = pytest.mark.anyio
every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
MACHINES = "/v1/apps/a/machines"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[tuple[Served, Fake]]:
    """One server for all tests of this file that only differ in what they send."""
    fake = Fake()
    async with served(fake.handlers(ROUTES)) as node:
        yield node, fake


@pytest.fixture
async def fake(shared: tuple[Served, Fake]) -> Fake:
    shared[1].forget()
    return shared[1]


@pytest.fixture
async def node(shared: tuple[Served, Fake], fake: Fake) -> Served:
    return shared[0]


@every_route
async def test_every_route_reaches_its_handler_and_its_answer_the_client(
    route: AnyRoute, node: Served, fake: Fake
) -> None:
    assert await use(node, route, params=params_of(route)) == sample(route.response)
    (call,) = fake.calls
    assert (call.params, call.query, call.body) == (params_of(route), route.query(), sample(route.body))
    assert call.caller == ("alice" if route.auth else "") and len(call.request_id) == 26


@every_route
async def test_every_route_that_is_not_public_needs_a_token(route: AnyRoute, node: Served, fake: Fake) -> None:
    async with Client(node.url, Secret("stolen")) as stranger:
        with_stranger = Served(node.url, node.server, stranger, node.http)
        if not route.auth:
            assert await use(with_stranger, route) == sample(route.response)
            return
        with pytest.raises(Unauthorized):
            await use(with_stranger, route)
    assert not fake.calls


@every_route
async def test_a_token_is_asked_about_what_the_path_names(route: AnyRoute, node: Served, fake: Fake) -> None:
    Nothing.tried.clear()
    async with Client(node.url, NARROW) as narrow:
        with_narrow = Served(node.url, node.server, narrow, node.http)
        if not route.auth or not route.guarded:
            assert await use(with_narrow, route) == sample(route.response)
            assert Nothing.tried == []
            return
        with pytest.raises(Forbidden):
            await use(with_narrow, route)
    assert not fake.calls
    (tried,) = Nothing.tried
    usual = {"GET": Action.READ, "DELETE": Action.DELETE}.get(route.method, Action.WRITE)
    assert tried.action is (route.action or usual)
    named = [name is not None for name in (tried.app, tried.machine)]
    assert named == ["{app_name}" in route.path, "{machine_id}" in route.path]


def test_only_these_calls_ask_the_grant_themselves() -> None:
    own = {route.name for route in ROUTES if route.auth and not route.guarded}
    lists = {"list_apps", "list_org_machines", "list_org_volumes"}
    others = {"create_app", "machine_history", "current_tokens", "revoke_token", "list_placements", "place"}
    logins = {"list_registry_logins", "put_registry_login", "delete_registry_login", "find_snapshot"}
    moves = {"list_moves", "get_move", "cancel_move", "pause_move", "resume_move", "limit_move"}
    peers = {"list_wireguard_peers", "put_wireguard_peer", "delete_wireguard_peer"}
    assert own == lists | others | logins | moves | peers


def test_a_call_that_runs_a_program_or_makes_a_token_needs_control() -> None:
    control = {route.name for route in ROUTES if route.action is Action.CONTROL}
    assert control >= {"exec_machine", "machine_terminal", "signal_machine", "create_deploy_token"}


def _made(kind: type[HawkerError]) -> HawkerError:
    return NoRoom("full", scope="host", shortfall={"cpus": 1}) if kind is NoRoom else kind("what happened")


@every_route
async def test_every_declared_error_comes_back_as_itself(route: AnyRoute, node: Served, fake: Fake) -> None:
    for kind in declared_errors(route):
        fake.error = _made(kind)
        with pytest.raises(kind) as caught:
            await use(node, route)
        assert str(caught.value) == str(fake.error)


def test_a_server_with_a_route_that_nothing_answers_is_refused() -> None:
    with pytest.raises(AssertionError, match="routes without a handler: list_apps, create_app"):
        Server(Handlers(), authenticate, SystemClock(), routes=(LIST_APPS, CREATE_APP))


async def test_an_unexpected_error_is_a_500_that_says_only_the_requests_id(
    node: Served, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    fake.error = ZeroDivisionError("secret")
    async with node.http.get("/v1/apps") as response:
        body = await response.json()
        request_id = response.headers["fly-request-id"]
    assert (response.status, body) == (500, {"error": f"internal error, request id {request_id}", "status": "unknown"})
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["unexpected error"]


async def test_a_500_is_a_fault_to_the_client(node: Served, fake: Fake) -> None:
    fake.error = CannotStart("broken")
    with pytest.raises(Fault, match="broken"):
        await node.client.call(LIST_APPS)


async def test_an_error_body_is_as_the_contract_says(node: Served, fake: Fake) -> None:
    held = fake.error = LeaseHeld("machine ID x lease currently held by y, expires at 2026-01-01T00:00:00Z")
    async with node.http.post(f"{MACHINES}/x/start") as response:
        assert response.status == 409
        assert await response.json() == {"error": str(held), "status": "unknown"}
        assert len(response.headers["fly-request-id"]) == 26


async def test_no_room_says_where_and_how_much(node: Served, fake: Fake) -> None:
    fake.error = NoRoom("full", scope="host", shortfall={"memory_mb": 64}, nearest="ams")
    async with node.http.post(MACHINES, data=b'{"config":{"image":"a"}}') as response:
        assert response.status == 422
        assert await response.json() == {
            "error": "full",
            "status": "insufficient_capacity",
            "scope": "host",
            "shortfall": {"memory_mb": 64},
            "nearest": "ams",
        }


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/", 404, "there is no such path"),
        ("GET", "/v1/nothing", 404, "there is no such path"),
        ("GET", "/v1/apps//machines", 404, "there is no such path"),
        ("PUT", "/v1/apps", 405, "this path takes GET, POST"),
        ("HEAD", "/v1/apps", 405, ""),
        ("GET", f"{MACHINES}/m/suspend", 405, "this path takes POST"),
        ("POST", "/v1/tokens/oidc", 501, "making OIDC tokens is not served by this node yet"),
        ("GET", "/hawker/v1/apps/a/machines/m/terminal", 400, "a conversation over a WebSocket"),
        ("GET", "/v1/apps?limit=many", 400, "limit"),
        ("GET", f"{MACHINES}?state=nope", 400, "nope"),
    ],
)
async def test_a_path_not_there_is_a_typed_body(node: Served, method: str, path: str, status: int, says: str) -> None:
    async with node.http.request(method, path) as response:
        assert (response.status, response.content_type) == (status, "application/json")
        text = await response.text()
        assert says in text and (method == "HEAD" or '"status":"unknown"' in text)


async def test_a_wrong_method_names_the_right_ones(node: Served) -> None:
    async with node.http.put("/v1/apps") as response:
        assert response.headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "needs a JSON body"),
        (b"{", 400, "is not JSON"),
        (b"[" * 200_000, 400, "lists and objects in each other"),
        (b'{"config":' + b"[" * 64 + b"]" * 64 + b"}", 400, "more than 64 lists and objects in each other"),
        (b'{"config":{"image":1}}', 422, "config.image: expected"),
        (b'{"config":{"image":"a","bogus":{}}}', 422, "config.bogus is not a known field"),
        (b'{"config":' + b'{"guest":' * 50_000 + b"}" * 50_001, 400, ""),
    ],
)
async def test_a_bad_body_is_refused_with_its_reason(
    node: Served, fake: Fake, body: bytes, status: int, says: str
) -> None:
    async with node.http.post(MACHINES, data=body) as response:
        text = await response.text()
    assert says in text and response.status == status and not fake.calls


async def test_a_body_of_100_mb_is_refused_without_being_read(node: Served, fake: Fake) -> None:
    async with node.http.post(MACHINES, data=b"x" * 100_000_000) as response:
        assert response.status == 413
        assert "larger than 1048576 bytes" in await response.text()
    assert (await node.client.call(LIST_APPS)).total_apps == 1, "the server goes on"
    assert [type(call.params).__name__ for call in fake.calls] == ["NoParams"]


async def test_a_body_without_a_length_is_refused_when_it_grows_too_large(node: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65_536

    async with node.http.post(MACHINES, data=chunks()) as response:
        assert response.status == TooLarge.status and MAX_BODY_BYTES < 64 * 65_536


async def test_the_alias_of_a_call_is_the_same_call(node: Served, fake: Fake) -> None:
    for method in ("PUT", "PATCH"):
        async with node.http.request(method, f"{MACHINES}/m/metadata", json={"metadata": {"a": None}}) as response:
            assert (response.status, await response.read()) == (204, b"")
    assert [call.body.metadata for call in fake.calls] == [{"a": None}, {"a": None}]


async def test_a_lease_is_asked_for_in_every_way_that_clients_do(node: Served, fake: Fake) -> None:
    for path, body in (("lease?ttl=13", b""), ("lease/?ttl=2m", b""), ("lease", b'{"ttl":60}')):
        async with node.http.post(f"{MACHINES}/m/{path}", data=body) as response:
            assert response.status == 201
    assert [(call.query.ttl, call.body.ttl) for call in fake.calls] == [(13, None), (120, None), (None, 60)]


async def test_nonce_and_key_reach_the_handler(node: Served, fake: Fake) -> None:
    await use(node, CREATE_MACHINE, nonce="n", idempotency_key="k")
    assert (fake.calls[0].nonce, fake.calls[0].idempotency_key) == ("n", "k")


async def test_a_page_has_its_cursor_in_the_header(node: Served) -> None:
    async with node.http.get(MACHINES) as response:
        assert response.headers["fly-next-cursor"] == "next"
        assert isinstance(await response.json(), list)


async def test_each_request_is_one_line_of_the_log(node: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="hawker.api"):
        await use(node, PULL_IMAGE)
        async with node.http.get("/nothing") as response:
            await response.read()
    lines = [vars(record) for record in caplog.records if record.getMessage() == "request"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/hawker/v1/images/pull", 200),
        ("GET", "-", 404),
    ]
    assert all(line["ms"] >= 0 and len(line["request_id"]) == 26 for line in lines)


@pytest.mark.parametrize(("path", "kind"), [("/openapi.json", "application/json"), ("/docs", "text/html")])
async def test_the_api_describes_itself_to_anyone(node: Served, path: str, kind: str) -> None:
    async with aiohttp.ClientSession(node.url) as stranger, stranger.get(path) as response:
        assert (response.status, response.content_type) == (200, kind)
        assert "list_machines" in await response.text()


async def test_the_root_token_is_refused_from_a_machine_and_others_are_not() -> None:
    async def anybody(authorization: str | None, source: str) -> Grant:
        return Everything(ROOT) if authorization == "Bearer root" else Everything("ann", root=False)

    server = Server(Fake().handlers(ROUTES), anybody, SystemClock(), proxies=[ip_network("127.0.0.0/8")])

    async def answered(token: str, source: str) -> int:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": source}
        async with http.get(f"{url}/v1/apps?org_slug=personal", headers=headers) as response:
            return response.status

    async with listening(server, "127.0.0.1", 0) as url, aiohttp.ClientSession() as http:
        machine = "fdaa:0:7:1::2"
        assert (await answered("root", machine), await answered("limited", machine)) == (403, 200)
        assert await answered("root", "2001:db8::2") == 200


async def test_calls_of_one_address_are_bounded_however_few_its_connections_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here they are those of two callers behind one proxy."""
    monkeypatch.setattr(server_module, "CALLS", msgspec.structs.replace(CALLS, each=2))
    begun, go, proxies = anyio.Semaphore(0), anyio.Event(), [ip_network("127.0.0.0/8")]

    async def wait(call: Call[Any, Any, Any]) -> Any:
        begun.release()
        await go.wait()
        return sample(LIST_APPS.response)

    handlers, statuses = Handlers(), list[int]()
    handlers.on(LIST_APPS, wait)
    server = Server(handlers, authenticate, SystemClock(), routes=[LIST_APPS], proxies=proxies)
    async with listening(server, "127.0.0.1", 0) as url, aiohttp.ClientSession(url) as http:

        async def ask(source: str) -> None:
            headers = {"Authorization": f"Bearer {TOKEN.reveal()}", "X-Forwarded-For": source}
            async with http.get("/v1/apps", headers=headers) as response:
                statuses.append(response.status)

        async with anyio.create_task_group() as tasks:
            for source in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
                tasks.start_soon(ask, source)
                await begun.acquire()
            await ask("192.0.2.1")
            assert statuses == [429]
            go.set()
        await ask("192.0.2.1")
    assert statuses == [429, 200, 200, 200, 200], "a place is given back"
