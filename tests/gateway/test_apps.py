"""Apps of a fleet: one name, one app; a home that keeps its secrets; and all nodes that know it."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.api.contract.app import (
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    AppParams,
    CreateAppRequest,
    DeleteAppQuery,
    ListAppsQuery,
)
from hawker.api.contract.machine import CREATE_MACHINE, UPDATE_MACHINE, CreateMachineRequest, UpdateMachineRequest
from hawker.api.contract.market import PLACE, PlaceRequest
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    PUT_POLICY,
    NetworkPolicyRequest,
    PolicyParams,
    PolicyPort,
    Rule,
    Selector,
)
from hawker.api.contract.secret import GET_SECRET, SET_SECRET, SecretParams, SecretsQuery, SetSecretRequest
from hawker.errors import BadRequest, Fault, Forbidden, HawkerError, NameTaken, NotFound, Unavailable, WrongState
from hawker.gateway.claims import NameQuorum
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt
from hawker.policy import Direction, Transport
from hawker.record.app import APPS, NAMES
from hawker.sim.node.sim_worker import config_of
from tests.gateway.town import APP, FAR, SHOP, Broker, Host, Town, of_machine, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

TOKEN = SecretParams(app_name=APP, secret_name="TOKEN")


class NoControl:
    """The grant of a token that may do anything but control."""

    name = "bob"
    token_ids = ()
    root = False

    def check(self, attempt: Attempt) -> None:
        if not self.permits(attempt):
            raise Forbidden("not for you")

    def permits(self, attempt: Attempt) -> bool:
        return Action.CONTROL not in attempt.action and attempt.org in (None, "personal")


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path) as town:
        yield town


def brokers(town: Town) -> list[Broker]:
    """One beside each node."""
    return [Broker(town, host) for host in town.hosts.values()]


def far(town: Town) -> Host:
    return town.hosts[NodeId(f"{3:08x}")]


def known(town: Town, app: str = APP) -> list[NodeId]:
    """The nodes that have a record of it."""
    return [host.id for host in town.hosts.values() if host.worker.store.get(APPS, app) is not None]


def policy() -> NetworkPolicyRequest:
    rule = Rule(action="allow", direction=Direction.INGRESS, ports=(PolicyPort(protocol=Transport.TCP, port=80),))
    return NetworkPolicyRequest(name="web", selector=Selector(all=True), allowed=(rule,))


async def test_an_app_is_made_beside_the_broker_and_known_to_all(town: Town) -> None:
    one, two, _ = brokers(town)
    await two.api.app()
    assert town.home_of_app(AppName(APP)) == NodeId(f"{2:08x}")
    assert (await one.api.call(GET_APP, params=SHOP)).name == APP


async def test_a_name_is_taken_whichever_broker_is_asked(town: Town) -> None:
    one, two, three = brokers(town)
    await one.api.app()
    for broker in (two, three):
        with pytest.raises(NameTaken):
            await broker.api.app()


async def test_of_brokers_that_want_a_name_at_once_one_gets_it(town: Town) -> None:
    """Also where the catalog says nothing yet."""
    town.freeze()
    outcomes = list[object]()

    async def want(broker: Broker) -> None:
        try:
            await broker.api.app()
            outcomes.append("made")
        except HawkerError as error:
            outcomes.append(type(error))

    async with anyio.create_task_group() as tasks:
        for broker in brokers(town) * 3:
            tasks.start_soon(want, broker)
    assert outcomes.count("made") == len(known(town)) == 1
    assert outcomes.count(NameTaken) == len(outcomes) - 1 == 8


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("place", [False, True])
@pytest.mark.parametrize("broker", ["the same", "another"])
async def test_an_app_takes_orders_before_the_catalog_tells_of_it(
    town: Town, broker: str, place: bool, key: str | None
) -> None:
    """A broker that saw the app made knows where; another one is told by the version that the call carries."""
    town.freeze()
    one, two, _ = brokers(town)
    await one.api.app()
    api = one.api if broker == "the same" else two.api
    api.version = one.api.metadata.version
    machine = CreateMachineRequest(config=config_of(), skip_launch=True)
    if place:
        body = PlaceRequest(app=APP, machine=machine)
        placed = await api.call(PLACE, body=body, idempotency_key=key)
        assert placed.filled == 1 and placed.refusal is None
    else:
        assert (await api.call(CREATE_MACHINE, params=SHOP, body=machine, idempotency_key=key)).id


@pytest.mark.parametrize("key", [None, "k"])
async def test_nobody_takes_orders_of_an_app_that_is_nowhere(town: Town, key: str | None) -> None:
    for broker in brokers(town):
        with pytest.raises(NotFound, match="app not found"):
            machine = CreateMachineRequest(config=config_of(), skip_launch=True)
            await broker.api.call(CREATE_MACHINE, params=SHOP, body=machine, idempotency_key=key)


async def test_a_name_that_nobody_got_is_not_lost(town: Town) -> None:
    one, two, _ = brokers(town)
    with pytest.raises(HawkerError):
        await one.api.call(CREATE_APP, body=CreateAppRequest(name=APP, network="no such network!"))
    await two.api.app()


async def test_one_key_makes_one_app(town: Town) -> None:
    one, two, _ = brokers(town)
    first = await one.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    again = await two.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    assert first.id == again.id


async def test_one_key_makes_one_app_before_the_catalog_tells_of_it(town: Town) -> None:
    town.freeze()
    first, *others = [
        await broker.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
        for broker in brokers(town)
    ]
    assert {each.id for each in others} == {first.id} and len(known(town)) == 1


@pytest.mark.parametrize("lost", [2, 3])
async def test_one_key_makes_one_app_though_a_keeper_missed_it(town: Town, lost: int) -> None:
    town.freeze()
    away, (one, two, _) = town.hosts[NodeId(f"{lost:08x}")], brokers(town)
    away.cut = True
    first = await one.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    away.cut = False
    again = await two.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    assert again.id == first.id and len(known(town)) == 1


async def test_a_second_broker_that_fails_gives_up_no_name_that_the_first_claimed(town: Town) -> None:
    town.freeze()
    _, two, three = brokers(town)
    home = town.hosts[NodeId(f"{1:08x}")]
    one = Broker(town, home, apart=True)
    made = await one.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    home.down = True
    with pytest.raises(Unavailable, match=f"node {home.id} in region mad is down"):
        await two.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    with pytest.raises(NameTaken):
        await three.api.app()
    home.down = False
    assert (await two.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")).id == made.id


async def test_an_app_that_a_broker_claimed_and_did_not_make_is_made_where_it_was_to_be(town: Town) -> None:
    _, two, _ = brokers(town)
    first = town.hosts[NodeId(f"{1:08x}")]
    names = NameQuorum(town, FanOut(Reach(town, town)))
    await names.keep(AppName(APP), "k", first.id, "ann", shared=True)
    await two.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    assert known(town) == [first.id] and town.home_of_app(AppName(APP)) == first.id


async def test_the_side_with_most_keepers_goes_on_in_a_partition(town: Town) -> None:
    one, *_ = brokers(town)
    far(town).cut = True
    await one.api.app("first")
    town.hosts[NodeId(f"{2:08x}")].cut = True
    with pytest.raises(Unavailable, match="nothing was made"):
        await one.api.app("second")
    assert not known(town, "second")
    assert all(host.worker.store.get(NAMES, "second") is None for host in town.hosts.values() if not host.cut)


async def test_an_app_whose_making_was_lost_is_made_by_who_asks_again(town: Town) -> None:
    away = Broker(town, far(town), apart=True)
    far(town).deaf = {"create_app"}
    with pytest.raises(Fault):
        await away.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")
    far(town).deaf = set()
    assert (await away.api.call(CREATE_APP, body=CreateAppRequest(name=APP), idempotency_key="k")).name == APP


async def test_an_app_s_resources_are_summed_over_nodes(town: Town) -> None:
    one, *_ = brokers(town)
    await one.api.app()
    for region in (FAR, FAR, None):
        await one.api.machine(region=region)
    await one.api.volume()
    shown = await one.api.call(GET_APP, params=SHOP)
    assert (shown.machine_count, shown.volume_count, shown.status) == (3, 1, "deployed")
    listed = await one.api.call(LIST_APPS)
    assert listed.total_apps == 1 and listed.apps[0].machine_count == 3
    far(town).cut = True
    assert (await one.api.call(GET_APP, params=SHOP)).machine_count == 1
    assert tuple(one.api.metadata.missing_regions) == (FAR,)


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_apps_are_listed_in_pages(town: Town, limit: int) -> None:
    names = [f"app-{number}" for number in range(5)]
    for name, broker in zip(names, brokers(town) * 2, strict=False):
        await broker.api.app(name)
    api, found, cursor = brokers(town)[0].api, list[str](), None
    while True:
        page = await api.call(LIST_APPS, query=ListAppsQuery(limit=limit, cursor=cursor))
        assert page.total_apps == 5
        found += [app.name for app in page.apps]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == names
    with pytest.raises(BadRequest):
        await api.call(LIST_APPS, query=ListAppsQuery(cursor="!"))


async def test_secrets_are_kept_at_home_and_reach_every_machine(town: Town) -> None:
    one, two, _ = brokers(town)
    await one.api.app()
    machine = await two.api.machine(region=FAR)
    await two.api.call(SET_SECRET, params=TOKEN, body=SetSecretRequest(value="abc"))
    query = SecretsQuery(show_secrets=True)
    assert (await two.api.call(GET_SECRET, params=TOKEN, query=query)).value == "abc"
    assert not far(town).worker.parts.deps.secrets.list(APP)
    body = UpdateMachineRequest(config=config_of(env={"A": "b"}), skip_launch=True)
    updated = await two.api.call(UPDATE_MACHINE, params=of_machine(machine.id), body=body)
    parts = far(town).worker.parts
    assert parts.deps.secrets.pinned(parts.deps.store, updated.id, updated.version) == {"TOKEN": "abc"}


async def test_values_of_secrets_are_for_who_may_control(town: Town) -> None:
    one, *_ = brokers(town)
    await one.api.app()
    await one.api.call(SET_SECRET, params=TOKEN, body=SetSecretRequest(value="abc"))
    for apart in (True, False):
        narrow = Broker(town, next(iter(town.hosts.values())), apart=apart, grant=NoControl()).api
        assert (await narrow.call(GET_SECRET, params=TOKEN)).value is None
        with pytest.raises(Forbidden):
            await narrow.call(GET_SECRET, params=TOKEN, query=SecretsQuery(show_secrets=True))


async def test_a_policy_is_in_force_wherever_the_app_is(town: Town) -> None:
    one, two, _ = brokers(town)
    await one.api.app()
    await two.api.machine(region=FAR)
    made = await two.api.call(PUT_POLICY, params=SHOP, body=policy())
    assert [each.id for each in far(town).worker.parts.policies.list(APP)] == [made.id]
    await two.api.call(DELETE_POLICY, params=PolicyParams(app_name=APP, policy_id=made.id))
    assert not far(town).worker.parts.policies.list(APP)
    far(town).cut = True
    with pytest.raises(Fault, match="not in force everywhere"):
        await two.api.call(PUT_POLICY, params=SHOP, body=policy())


async def test_an_app_with_something_anywhere_is_not_deleted(town: Town) -> None:
    one, two, _ = brokers(town)
    await one.api.app()
    await one.api.machine(region=FAR)
    with pytest.raises(WrongState, match="still has 1 machines"):
        await two.api.call(DELETE_APP, params=SHOP, query=DeleteAppQuery(force=False))
    far(town).cut = True
    with pytest.raises(Unavailable, match="was not deleted"):
        await two.api.call(DELETE_APP, params=SHOP, query=DeleteAppQuery(force=True))
    assert town.home_of_app(AppName(APP)) is not None


async def test_a_deleted_app_is_gone_everywhere_and_its_name_is_free(town: Town) -> None:
    one, two, _ = brokers(town)
    await one.api.app()
    await one.api.machine(region=FAR)
    await two.api.call(DELETE_APP, params=SHOP)
    assert not known(town)
    with pytest.raises(NotFound):
        await one.api.call(GET_APP, params=SHOP)
    await two.api.app()


async def test_a_delete_that_was_cut_short_is_finished_by_the_next(town: Town) -> None:
    one, two, _ = brokers(town)
    await one.api.app()
    await one.api.machine(region=FAR)
    far(town).deaf = {"delete_app"}
    with pytest.raises(Fault):
        await two.api.call(DELETE_APP, params=SHOP, query=DeleteAppQuery(force=True))
    far(town).deaf = set()
    await two.api.call(DELETE_APP, params=SHOP)
    assert not known(town)


async def test_no_app_has_a_role(town: Town) -> None:
    """A client takes the first app of the answer for a builder of its own, and deletes it."""
    one, *_ = brokers(town)
    await one.api.app()
    assert (await one.api.call(LIST_APPS, query=ListAppsQuery(app_role="remote-docker-builder"))).apps == ()
    assert [app.name for app in (await one.api.call(LIST_APPS)).apps] == [APP]


async def test_nobody_knows_an_app_that_was_never_made(town: Town) -> None:
    one, *_ = brokers(town)
    for route in (GET_APP, DELETE_APP):
        with pytest.raises(NotFound):
            await one.api.call(route, params=AppParams(app_name="nobody"))
    with pytest.raises(NotFound):
        await one.api.call(SET_SECRET, params=TOKEN, body=SetSecretRequest(value="abc"))


async def test_a_home_that_is_away_is_named(town: Town) -> None:
    one, _, three = brokers(town)
    await three.api.app()
    far(town).down = True
    with pytest.raises(Unavailable, match=f"node {far(town).id} in region {FAR}"):
        await one.api.call(SET_SECRET, params=TOKEN, body=SetSecretRequest(value="abc"))
