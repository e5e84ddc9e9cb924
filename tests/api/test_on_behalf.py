"""Calls in the name of another call's caller: judged, counted and told as the caller's own."""

from typing import Any

import pytest

from hawker.api.audit import AuditedCall
from hawker.api.contract.app import GET_APP, AppParams
from hawker.api.contract.secret import LIST_SECRETS, SET_SECRET, SecretParams, SecretsQuery, SetSecretRequest
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.on_behalf import OnBehalf
from hawker.api.route import AnyRoute, Call, NoParams, NoQuery
from hawker.errors import Forbidden, NotFound, RateLimited
from hawker.permission import Action, Attempt

pytestmark = pytest.mark.anyio

SHOP = AppParams(app_name="shop")
ANSWER: Any = object()


class Reader(Everything):
    """May read the app `shop`, and nothing else."""

    def __init__(self) -> None:
        super().__init__("ann", root=False)

    def check(self, attempt: Attempt) -> None:
        if attempt.action is not Action.READ or attempt.app != "shop":
            raise Forbidden("not for you")


class Told:
    """Keeps `Limiter` and `Auditor`, and writes down what it hears."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.full = False

    def spend(self, route: AnyRoute, params: Any, *, root: bool) -> None:
        self.lines.append(("spent", route.name, dict(params)))
        if self.full:
            raise RateLimited("too many")

    async def begins(self, call: AuditedCall) -> None:
        self.lines.append(("begins", call.route.name, call.grant.name, call.source))

    async def ends(self, call: AuditedCall, status: int) -> None:
        self.lines.append(("ends", call.route.name, status))


class Node:
    def __init__(self, grant: Everything) -> None:
        self.told, self.heard = Told(), list[Call[Any, Any, Any]]()
        handlers = Handlers()
        for route in (GET_APP, SET_SECRET, LIST_SECRETS):
            handlers.on(route, self.answer)
        self.behalf = OnBehalf(handlers, self.told, self.told)
        self.outer = Call(
            params=NoParams(), query=NoQuery(), body=None, grant=grant, request_id="01R", source="192.0.2.7"
        )

    async def answer(self, call: Call[Any, Any, Any]) -> Any:
        self.heard.append(call)
        if call.params.app_name == "nobody":
            raise NotFound("app not found")
        return ANSWER


async def test_a_call_has_its_callers_grant_address_and_request() -> None:
    node = Node(Reader())
    assert await node.behalf.call(node.outer, GET_APP, params=SHOP) is ANSWER
    (heard,) = node.heard
    assert (heard.grant, heard.source, heard.request_id) == (node.outer.grant, "192.0.2.7", "01R")
    assert node.told.lines == [("spent", "get_app", {"app_name": "shop"})]


async def test_a_call_that_the_token_may_not_is_refused_before_anything_is_done() -> None:
    node = Node(Reader())
    for params in (AppParams(app_name="other"), SecretParams(app_name="shop", secret_name="A")):
        route: Any = GET_APP if isinstance(params, AppParams) else SET_SECRET
        body = None if route is GET_APP else SetSecretRequest(value="x")
        with pytest.raises(Forbidden):
            await node.behalf.call(node.outer, route, params=params, body=body)
    assert node.heard == [] and node.told.lines == []


async def test_a_call_counts_against_the_limit_of_its_own_row() -> None:
    node = Node(Reader())
    node.told.full = True
    with pytest.raises(RateLimited):
        await node.behalf.call(node.outer, GET_APP, params=SHOP)
    assert node.heard == []


async def test_a_grave_call_is_told_before_it_is_done_and_with_its_outcome() -> None:
    node = Node(Everything("root"))
    for app, status in (("shop", 201), ("nobody", 404)):
        node.told.lines.clear()
        params, body = SecretParams(app_name=app, secret_name="A"), SetSecretRequest(value="x")
        if status == 404:
            with pytest.raises(NotFound):
                await node.behalf.call(node.outer, SET_SECRET, params=params, body=body)
        else:
            await node.behalf.call(node.outer, SET_SECRET, params=params, body=body)
        assert node.told.lines[1:] == [("begins", "set_secret", "root", "192.0.2.7"), ("ends", "set_secret", status)]


async def test_secrets_that_are_shown_are_told_and_their_names_are_not() -> None:
    node = Node(Everything("root"))
    for shown in (False, True):
        node.told.lines.clear()
        await node.behalf.call(node.outer, LIST_SECRETS, params=SHOP, query=SecretsQuery(show_secrets=shown))
        assert [line[0] for line in node.told.lines] == (["spent", "begins", "ends"] if shown else ["spent"])
