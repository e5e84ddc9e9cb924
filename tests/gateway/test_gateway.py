"""Every row of the route table is answered by a broker, and by whom is no accident."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import ASSIGN_IP, DELETE_APP, AssignIpRequest
from hawker.api.contract.cluster import JOIN_CLUSTER, JoinRequest
from hawker.api.contract.image import PUT_LOGIN, LoginRequest, RegistryParams
from hawker.api.contract.machine import CREATE_MACHINE, DELETE_MACHINE, DeleteMachineQuery
from hawker.api.contract.market import LIST_PLACEMENTS, PLACE
from hawker.api.contract.node import HEALTH, LIST_REGIONS, METRICS, NODE_INFO
from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams
from hawker.api.directory import Peers
from hawker.api.grant import Everything
from hawker.api.handlers import Handlers
from hawker.api.route import AnyRoute, Socket, Stream, Unary, Upload
from hawker.api.routes import ROUTES
from hawker.errors import Forbidden, HawkerError, NotFound
from hawker.gateway.gateway import Beside, Gateway
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt
from hawker.record.app import APPS
from tests.api.samples import sample
from tests.gateway.town import APP, FAR, HERE, SHOP, Broker, Town, of_machine, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

MERGED = frozenset(
    {"list_apps", "get_app", "list_machines", "list_volumes", "list_org_machines", "list_org_volumes", "list_runs",
     "app_log", "app_log_page", "list_audit", "list_moves"}
)  # fmt: skip
ASKED = frozenset(
    {"get_run", "retry_run", "abort_run", "find_snapshot", "get_move", "cancel_move",
     "pause_move", "resume_move", "limit_move", "take_deploy"}
)  # fmt: skip
ANSWERED = frozenset(
    {"health", "list_regions", "current_tokens", "authenticate_token", "authorize_token", "create_deploy_token",
     "revoke_token", "list_revoked", "create_machine", "place", "list_placements", "create_app", "delete_app",
     "create_volume", "put_policy", "delete_policy", "machine_history"}
)  # fmt: skip
"""By the broker: alone, or after what it decides."""


class OnlyRead:
    """The grant of a token that may read, but not the whole node."""

    name = "bob"
    token_ids = ()
    root = False

    def check(self, attempt: Attempt) -> None:
        if not self.permits(attempt):
            raise Forbidden("not for you")

    def permits(self, attempt: Attempt) -> bool:
        return attempt.action is Action.READ and attempt.app is not None


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path) as town:
        yield town


def way(route: AnyRoute) -> str:
    """How a broker answers it."""
    named = set(route.params.__struct_fields__)
    if route.name in MERGED:
        return "merged"
    if route.name in ASKED:
        return "asked"
    if route.name in ANSWERED:
        return "answered"
    if named & {"machine_id", "volume_id"}:
        return "owner"
    return "home" if "app_name" in named else "beside"


async def test_every_route_is_answered(town: Town) -> None:
    for apart in (True, False):
        broker = Broker(town, next(iter(town.hosts.values())), apart=apart)
        assert not broker.handlers.missing(ROUTES)


def test_every_way_is_known() -> None:
    names = {route.name for route in ROUTES}
    assert names >= MERGED | ASKED | ANSWERED and not MERGED & ANSWERED
    ways = {route.name: way(route) for route in ROUTES}
    assert {name for name, how in ways.items() if how == "beside"} >= {"node_info", "list_images", "back_up"}
    assert set(ways.values()) == {"merged", "asked", "answered", "owner", "home", "beside"}


class Refused(Exception):
    """What a node was asked for."""

    def __init__(self, route: str, node: NodeId) -> None:
        super().__init__(route, node)
        self.asked = (route, node)


class Refusing:
    """Peers of which each raises what it was asked for, in the terms of any of the four kinds of route."""

    def caller(self, node_id: NodeId, *, behalf: str) -> Any:
        return _Refusing(node_id)


class _Refusing:
    def __init__(self, node: NodeId) -> None:
        self._node = node

    async def call(self, route: AnyRoute, **given: object) -> None:
        raise Refused(route.name, self._node)

    async def upload(self, route: AnyRoute, data: object, **given: object) -> None:
        raise Refused(route.name, self._node)

    def stream(self, route: AnyRoute, **given: object) -> None:
        raise Refused(route.name, self._node)

    def socket(self, route: AnyRoute, body: object, **given: object) -> None:
        raise Refused(route.name, self._node)


class Nothing:
    """Of the market or of tokens: not asked here."""

    def __init__(self, *routes: AnyRoute) -> None:
        self._routes = routes

    def bind(self, handlers: Handlers, homes: object = None) -> None:
        async def answer(call: object) -> None:
            raise AssertionError

        for route in self._routes:
            handlers.on(route, answer)  # type: ignore[arg-type]


async def where(handlers: Handlers, route: AnyRoute, api: Any) -> tuple[str, NodeId] | None:
    """The node that a call of this route is passed to."""
    params = route.params(**{name: NAMED.get(name, "x") for name in route.params.__struct_fields__})
    try:
        match route:
            case Unary():
                await api.call(route, params=params, body=sample(route.body))
            case Stream():
                async with api.stream(route, params=params, body=sample(route.body)):
                    pass
            case Upload():
                await api.upload(route, None, params=params)
            case Socket():
                await handlers.of(route)(api._made(route, {"params": params, "body": sample(route.body)}), None)
    except Refused as refused:
        return refused.asked
    except ExceptionGroup as group:
        assert isinstance(group.exceptions[0], Refused)
        return group.exceptions[0].asked
    return None


NAMED = {"app_name": APP, "machine_id": "0" * 14, "volume_id": "vol_0000000000000000"}


BRINGING = ("update_machine", "move_volume", "put_wireguard_peer", "reclaim_move")
"""These bring an app, or a network's number, there first, or ask first which node has a move."""


async def test_every_call_that_is_passed_goes_to_the_node_that_its_path_names(town: Town) -> None:
    first, second, far = town.hosts
    await Broker(town, town.hosts[second]).api.app()
    town.moved = {NAMED["machine_id"]: far, NAMED["volume_id"]: far}
    peers: Peers = Refusing()
    tokens = [
        route for route in ROUTES if (route.name in ANSWERED and "token" in route.name) or route.name == "list_revoked"
    ]
    clock = town.hosts[first].worker.parts.deps.clock
    broker = Gateway(
        town, peers, Beside(node=first), clock,
        market=Nothing(CREATE_MACHINE, PLACE, LIST_PLACEMENTS), tokens=Nothing(*tokens),
    )  # fmt: skip
    handlers = broker.handlers()
    client = Broker(town, town.hosts[first]).api
    client._handlers = handlers
    expected = {"owner": far, "home": second, "beside": first}
    for route in ROUTES:
        if way(route) in expected and route.name not in BRINGING:
            asked = await where(handlers, route, client)
            assert asked == (route.name, expected[way(route)]), route.name


async def test_regions_of_all_nodes_are_listed(town: Town) -> None:
    shown = await Broker(town, next(iter(town.hosts.values()))).api.call(LIST_REGIONS)
    assert [region.code for region in shown.regions] == [FAR, HERE] and shown.nearest == HERE


async def test_health_is_the_brokers_own(town: Town) -> None:
    for host in town.hosts.values():
        host.cut = True
    api = Broker(town, next(iter(town.hosts.values())), apart=True).api
    assert (await api.call(HEALTH)).status == "ok"
    with pytest.raises(HawkerError):
        await api.call(NODE_INFO)


async def test_a_broker_apart_shows_its_own_metrics(town: Town) -> None:
    host = next(iter(town.hosts.values()))
    market, tokens = Nothing(CREATE_MACHINE, PLACE, LIST_PLACEMENTS), Nothing()
    beside = Beside(node=host.id, exposition=lambda: "mine 1\n")
    made = Gateway(town, town, beside, host.worker.parts.deps.clock, market=market, tokens=tokens)
    api = Broker(town, host).api
    api._handlers = made.handlers()
    assert await api.call(METRICS) == "mine 1\n"


async def test_a_history_is_told_to_who_may_read_the_app_that_it_is_of(town: Town) -> None:
    api = Broker(town, next(iter(town.hosts.values()))).api
    await api.app()
    machine = await api.machine(region=FAR)
    params = HistoryParams(machine_id=machine.id)
    assert (await api.call(MACHINE_HISTORY, params=params)).app == APP
    narrow = Broker(town, next(iter(town.hosts.values())), grant=OnlyRead()).api
    assert (await narrow.call(MACHINE_HISTORY, params=params)).id == machine.id
    await api.call(DELETE_MACHINE, params=of_machine(machine.id), query=DeleteMachineQuery(force=True))
    clock = next(iter(town.hosts.values())).worker.parts.deps.clock
    await clock.sleep(60)
    await api.call(DELETE_APP, params=SHOP)
    await api.app()
    with pytest.raises(NotFound):
        await narrow.call(MACHINE_HISTORY, params=params)
    assert (await api.call(MACHINE_HISTORY, params=params)).id == machine.id


async def test_a_token_that_is_not_the_root_token_does_not_become_it_on_the_way(town: Town) -> None:
    class Whole(OnlyRead):
        def permits(self, attempt: Attempt) -> bool:
            return True

    host = next(iter(town.hosts.values()))
    narrow = Broker(town, host, apart=True, grant=Whole()).api
    with pytest.raises(Forbidden):
        await narrow.call(JOIN_CLUSTER, body=JoinRequest())
    assert not [name for name, _ in host.calls if name == JOIN_CLUSTER.name]
    assert isinstance(Broker(town, host, apart=True).api._grant, Everything)


async def test_an_address_in_another_orgs_network_takes_a_right_there(town: Town) -> None:
    host = next(iter(town.hosts.values()))
    await Broker(town, host).api.app()
    narrow = Broker(town, host, apart=True, grant=OnlyRead()).api
    body = AssignIpRequest(type="private_v6", org_slug="theirs")
    with pytest.raises(Forbidden):
        await narrow.call(ASSIGN_IP, params=SHOP, body=body)
    await narrow.call(ASSIGN_IP, params=SHOP, body=msgspec.structs.replace(body, org_slug="personal"))


@pytest.mark.parametrize("apart", [False, True])
async def test_row_of_an_earlier_app_of_the_name_gives_no_right_to_its_orgs_network(town: Town, apart: bool) -> None:
    home, _, away = town.hosts.values()
    await Broker(town, home).api.app()
    record = home.worker.store.get(APPS, APP)
    assert record is not None
    earlier = msgspec.structs.replace(record, org="theirs", home=home.id)
    await away.worker.store.write(lambda tx: tx.put(APPS, APP, earlier))
    assert {known.org for known in town.app(AppName(APP))} == {"personal", "theirs"}
    narrow = Broker(town, home, apart=apart, grant=OnlyRead()).api
    with pytest.raises(Forbidden):
        await narrow.call(ASSIGN_IP, params=SHOP, body=AssignIpRequest(type="private_v6", org_slug="theirs"))
    assert not [name for name, _ in home.calls if name == ASSIGN_IP.name]
    await narrow.call(ASSIGN_IP, params=SHOP, body=AssignIpRequest(type="private_v6", org_slug="personal"))


@pytest.mark.parametrize("registry", ["127.0.0.1:9090", "https://127.0.0.1:9090/"])
async def test_a_login_at_an_inside_address_takes_a_right_to_the_node(town: Town, registry: str) -> None:
    class OfOrg(OnlyRead):
        def permits(self, attempt: Attempt) -> bool:
            return attempt.org == "theirs"

    host = next(iter(town.hosts.values()))
    narrow = Broker(town, host, apart=True, grant=OfOrg()).api
    at, body = RegistryParams(org_slug="theirs", registry=registry), LoginRequest(username="ada", password="x")
    with pytest.raises(Forbidden, match="only a token that may write the node"):
        await narrow.call(PUT_LOGIN, params=at, body=body)
    assert not [name for name, _ in host.calls if name == PUT_LOGIN.name]
    await narrow.call(PUT_LOGIN, params=at, body=msgspec.structs.replace(body, unchecked=True))
