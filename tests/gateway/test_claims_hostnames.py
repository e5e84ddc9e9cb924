"""Whose a host name is in a fleet, while two homes ask at once and nodes are away."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, DELETE_APP, AppParams, CreateAppRequest
from hawker.api.contract.certificate import (
    DELETE_CERTIFICATE,
    IMPORT_CERTIFICATE,
    CertificateParams,
    ImportCertificateRequest,
)
from hawker.api.contract.owner import (
    KEEP_HOSTNAME,
    RELEASE_HOSTNAME,
    HostnameKept,
    HostnameParams,
    HostnameRequest,
    ReleaseHostnameQuery,
)
from hawker.api.route import Call
from hawker.errors import Forbidden, HawkerError, NotFound, QuotaExceeded, Unavailable, Unprocessable
from hawker.fair.table import HOSTNAMES as HOSTNAMES_SHARE
from hawker.fleet import app_handlers
from hawker.gateway.claims import ABANDONED_S, HostnameQuorum
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import AppName, NodeId
from hawker.record.app import HOSTNAME_COUNTS, HOSTNAMES, HostnameClaim, HostnameCount, org_of
from hawker.secret.certificates import AFFIRM_EVERY_S
from hawker.store.contract import Bucket, Tx, decode
from tests.certificates import issued
from tests.gateway.town import FAR, HERE, Client, Host, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NAME = "www.example.com"
CHAIN, KEY = issued(NAME)
IMPORT = ImportCertificateRequest(hostname=NAME, fullchain=CHAIN, private_key=KEY)


def api(host: Host) -> Client:
    return Client(host.handlers, host.worker.parts.deps.clock, None)


def join(town: Town, host: Host) -> None:
    """From now on this home asks the others."""
    host.worker.parts.deps.certificates.meet(HostnameQuorum(host.id, town, town, FanOut(Reach(town, town))))


async def made(host: Host, app: str) -> None:
    await api(host).call(CREATE_APP, body=CreateAppRequest(name=app))


async def put(host: Host, app: str) -> None:
    await api(host).call(IMPORT_CERTIFICATE, params=AppParams(app_name=app), body=IMPORT)


def kept_for(town: Town) -> set[str]:
    claims = [host.worker.store.get(HOSTNAMES, NAME) for host in town.hosts.values()]
    return {claim.app for claim in claims if claim is not None}


def kept_at(hosts: Iterable[Host]) -> set[NodeId]:
    return {host.id for host in hosts if host.worker.store.get(HOSTNAMES, NAME) is not None}


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, HERE, HERE, FAR) as town:
        for host in town.hosts.values():
            join(town, host)
            await made(host, f"shop-{host.id[-1]}")
        yield town


async def test_a_name_that_two_homes_ask_for_at_once_is_one_apps(town: Town) -> None:
    said: list[HawkerError | None] = []

    async def one(host: Host) -> None:
        try:
            await put(host, f"shop-{host.id[-1]}")
        except HawkerError as error:
            said.append(error)
        else:
            said.append(None)

    async with anyio.create_task_group() as tasks:
        for host in town.hosts.values():
            tasks.start_soon(one, host)
    assert said.count(None) == 1
    for refused in filter(None, said):
        assert isinstance(refused, Unprocessable) and "another app's" in str(refused)
    assert len(kept_for(town)) == 1


@pytest.mark.parametrize("goes", ["name", "app"])
async def test_a_name_is_free_again_when_it_or_its_app_goes(town: Town, goes: str) -> None:
    first, second, *_ = town.hosts.values()
    await put(first, "shop-1")
    with pytest.raises(Unprocessable):
        await put(second, "shop-2")
    if goes == "name":
        await api(first).call(DELETE_CERTIFICATE, params=CertificateParams(app_name="shop-1", hostname=NAME))
    else:
        await api(first).call(DELETE_APP, params=AppParams(app_name="shop-1"))
    assert kept_for(town) == set()
    await put(second, "shop-2")


class Certified(Client):
    """The node whose certificate the calls come with."""

    node = ""

    def _made(self, *given: Any) -> Call[Any, Any, Any]:
        return msgspec.structs.replace(super()._made(*given), certified=self.node)


async def test_a_name_is_released_by_the_node_that_claimed_it_alone(town: Town) -> None:
    first, second, *_ = town.hosts.values()
    await put(first, "shop-1")
    keeper = next(host for host in town.hosts.values() if host.worker.store.get(HOSTNAMES, NAME) is not None)
    asks = Certified(keeper.handlers, keeper.worker.parts.deps.clock, None)
    params, query = HostnameParams(hostname=NAME), ReleaseHostnameQuery(app="shop-1")
    asks.node = second.id
    with pytest.raises(Forbidden, match=f"node {second.id} releases a host name that node {first.id} has claimed"):
        await asks.call(RELEASE_HOSTNAME, params=params, query=query)
    assert keeper.worker.store.get(HOSTNAMES, NAME) is not None
    asks.node = first.id
    await asks.call(RELEASE_HOSTNAME, params=params, query=query)
    assert keeper.worker.store.get(HOSTNAMES, NAME) is None


async def test_a_name_that_a_refused_import_claimed_is_free_again(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = town.hosts.values()
    monkeypatch.setattr("hawker.secret.certificates.MAX_OF_APP", 0)
    with pytest.raises(Unprocessable, match="at most 0"):
        await put(first, "shop-1")
    monkeypatch.undo()
    await put(second, "shop-2")


async def test_a_new_name_needs_a_majority_and_one_that_the_app_has_needs_nobody(town: Town) -> None:
    first, *others = town.hosts.values()
    for host in others:
        host.down = True
    with pytest.raises(Unavailable, match="too few nodes answer"):
        await put(first, "shop-1")
    assert kept_for(town) == set()
    for host in others:
        host.down = False
    await put(first, "shop-1")
    for host in others:
        host.down = True
    await put(first, "shop-1")


async def test_a_name_that_the_app_has_stays_claimed_where_too_few_keepers_answer(town: Town) -> None:
    first, *others = town.hosts.values()
    await put(first, "shop-1")
    quorum = HostnameQuorum(first.id, town, town, FanOut(Reach(town, town)))
    among = [town.hosts[node] for node in quorum.keepers(NAME)]
    before = kept_at(among)
    for host in others:
        host.deaf = {KEEP_HOSTNAME.name}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.worker.parts.deps.certificates.affirm)
        await first.worker.parts.deps.clock.sleep(AFFIRM_EVERY_S)
        tasks.cancel_scope.cancel()
    assert kept_at(among) == before and len(before) == len(among) > 1
    with pytest.raises(Unavailable, match="too few nodes answer"):
        await quorum.affirm(NAME, AppName("shop-1"), "acme")


async def test_a_name_that_was_claimed_and_not_taken_is_free_after_a_while(town: Town) -> None:
    first, second, *_ = town.hosts.values()
    quorum = HostnameQuorum(first.id, town, town, FanOut(Reach(town, town)))
    await quorum.keep(NAME, AppName("shop-1"), "acme")
    with pytest.raises(Unprocessable):
        await put(second, "shop-2")
    await first.worker.parts.deps.clock.sleep(ABANDONED_S)
    await put(second, "shop-2")
    assert kept_for(town) == {"shop-2"}


async def test_a_name_whose_home_was_forgotten_stays_the_apps_while_that_is_there(town: Town) -> None:
    first, second, *_ = town.hosts.values()
    await put(first, "shop-1")
    town.freeze()
    town.forget(first)
    await second.worker.parts.deps.clock.sleep(ABANDONED_S)
    with pytest.raises(Unprocessable):
        await put(second, "shop-2")
    town.frozen = None
    await put(second, "shop-2")


async def test_a_name_from_before_there_were_claims_is_claimed_and_never_given_to_another(tmp_path: Path) -> None:
    async with town_of(tmp_path, HERE, HERE, HERE) as town:
        first, second, _ = town.hosts.values()
        await made(first, "shop-1")
        await made(second, "shop-2")
        await put(first, "shop-1")
        join(town, first)
        join(town, second)
        with pytest.raises(Unprocessable):
            await put(second, "shop-2")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.worker.parts.deps.certificates.affirm)
            await first.worker.parts.deps.clock.sleep(AFFIRM_EVERY_S)
            tasks.cancel_scope.cancel()
        assert all(host.worker.store.get(HOSTNAMES, NAME) is not None for host in town.hosts.values())
        with pytest.raises(Unprocessable):
            await put(second, "shop-2")


OTHER_NAMES = [f"{number}.example.com" for number in range(3)]


async def claim(town: Town, count: int, org: str = "") -> None:
    """For an app of this organization that nobody here knows, at every keeper."""
    for host in town.hosts.values():
        for name in OTHER_NAMES[:count]:
            body = HostnameRequest(app="crowd", home=host.id, org=org)
            await api(host).call(KEEP_HOSTNAME, params=HostnameParams(hostname=name), body=body)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    share = msgspec.structs.replace(HOSTNAMES_SHARE, total=8, each=3, reserve=2)
    monkeypatch.setattr(app_handlers, "HOSTNAMES_SHARE", share)


@pytest.mark.usefixtures("small")
async def test_a_name_over_the_share_of_its_organization_is_refused_and_one_of_another_is_not(town: Town) -> None:
    first = next(iter(town.hosts.values()))
    org = org_of(first.worker.store, "shop-1")
    await claim(town, 3, org)
    with pytest.raises(QuotaExceeded, match=f"organization {org} has 3 of the 3 .* at most 3.*: remove some"):
        await put(first, "shop-1")
    assert kept_for(town) == set()
    await claim(town, 3, "crowd")
    await put(first, "shop-1")
    claims = [host.worker.store.get(HOSTNAMES, NAME) for host in town.hosts.values()]
    assert {each.org for each in claims if each is not None} == {org}


@pytest.mark.usefixtures("small")
async def test_a_name_needs_room_at_a_majority_of_its_keepers_alone(town: Town) -> None:
    first = next(iter(town.hosts.values()))
    org = org_of(first.worker.store, "shop-1")
    quorum = HostnameQuorum(first.id, town, town, FanOut(Reach(town, town)))
    full = town.hosts[quorum.keepers(NAME)[0]]
    for name in OTHER_NAMES:
        kept = HostnameClaim(app=AppName("crowd"), home=first.id, at=0.0, org=org)
        await full.worker.store.write(lambda tx, name=name, kept=kept: tx.put(HOSTNAMES, name, kept))  # type: ignore[misc]
    await put(first, "shop-1")
    assert full.worker.store.get(HOSTNAMES, NAME) is None and kept_for(town) == {"shop-1"}


@pytest.mark.usefixtures("small")
async def test_a_name_that_an_older_home_claims_counts_for_its_app(town: Town) -> None:
    first = next(iter(town.hosts.values()))
    await claim(town, 3)
    await put(first, "shop-1")
    keeper = town.hosts[HostnameQuorum(first.id, town, town, FanOut(Reach(town, town))).keepers(NAME)[0]]
    params = HostnameParams(hostname="one-more.example.com")
    older = HostnameRequest(app="crowd", home=first.id)
    with pytest.raises(QuotaExceeded, match="organization crowd has 3"):
        await api(keeper).call(KEEP_HOSTNAME, params=params, body=older)


class Keeper:
    """A node that keeps host names, asked by homes."""

    def __init__(self, host: Host) -> None:
        self.store = host.worker.store
        self._host = host

    async def keep(self, name: str, app: str, org: str = "", instead_of: str | None = None) -> str:
        body = HostnameRequest(app=app, home=self._host.id, org=org, instead_of=instead_of)
        kept: HostnameKept = await api(self._host).call(KEEP_HOSTNAME, params=HostnameParams(hostname=name), body=body)
        return kept.app

    async def release(self, name: str, app: str) -> None:
        query = ReleaseHostnameQuery(app=app)
        await api(self._host).call(RELEASE_HOSTNAME, params=HostnameParams(hostname=name), query=query)

    def counted(self) -> dict[str, HostnameCount]:
        return dict(self.store.scan(HOSTNAME_COUNTS))

    def there(self) -> dict[str, HostnameCount]:
        """What the claims themselves come to."""
        orgs = Counter(claim.org for _, claim in self.store.scan(HOSTNAMES))
        each = {org: HostnameCount(names=names) for org, names in orgs.items()}
        return {"": HostnameCount(names=orgs.total(), orgs=len(orgs))} | each


@pytest.fixture
def keeper(town: Town) -> Keeper:
    return Keeper(next(iter(town.hosts.values())))


async def test_a_name_that_is_claimed_reads_as_many_rows_beside_two_thousand_as_beside_none(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows_read(name: str) -> list[str]:
        read: list[str] = []

        def noting(bucket: Bucket[Any], key: str, data: bytes) -> Any:
            read.append(bucket.name)
            return decode(bucket, key, data)

        with monkeypatch.context() as patched:
            patched.setattr("hawker.store.memory_store.decode", noting)
            await keeper.keep(name, "shop", "acme")
        return read

    def crowd(tx: Tx) -> None:
        for number in range(2000):
            kept = HostnameClaim(app=AppName("a"), home=NodeId("0000000b"), at=0.0, org=f"org-{number}")
            tx.put(HOSTNAMES, f"{number}.example.com", kept)

    await keeper.keep("first.example.com", "shop", "acme")
    alone = await rows_read("second.example.com")
    await keeper.store.write(crowd)
    assert await rows_read("third.example.com") == alone
    assert await rows_read("*.example.com") == alone, "of a wildcard no more"
    assert len(alone) <= 4


async def test_a_name_is_counted_for_who_has_it_through_all_that_becomes_of_it(keeper: Keeper) -> None:
    steps = (
        lambda: keeper.keep("a.example.com", "shop", "acme"),
        lambda: keeper.keep("a.example.com", "shop", "acme"),  # once more
        lambda: keeper.keep("b.example.com", "shop", "acme"),
        lambda: keeper.keep("b.example.com", "bar", "beta"),  # it is another's
        lambda: keeper.keep("b.example.com", "bar", "beta", "shop"),  # who has given it up
        lambda: keeper.keep("c.example.com", "old"),  # by a home that says no organization
        lambda: keeper.keep("c.example.com", "old", "acme"),  # and then does
        lambda: keeper.release("a.example.com", "bar"),  # it is another's
        lambda: keeper.release("a.example.com", "shop"),
        lambda: keeper.release("a.example.com", "shop"),
        lambda: keeper.release("b.example.com", "bar"),
        lambda: keeper.release("c.example.com", "old"),
    )
    for step in steps:
        await step()
        assert keeper.counted() == keeper.there()
    assert keeper.counted() == {"": HostnameCount(names=0)}


@pytest.mark.usefixtures("small")
async def test_a_name_that_an_older_version_kept_in_between_counts_for_the_next_process(tmp_path: Path) -> None:
    async with town_of(tmp_path, HERE) as town:
        keeper = Keeper(next(iter(town.hosts.values())))

        def older(tx: Tx) -> None:
            tx.put(HOSTNAME_COUNTS, "", HostnameCount(names=1, orgs=1))
            tx.put(HOSTNAME_COUNTS, "gone", HostnameCount(names=1))
            for name in OTHER_NAMES:
                kept = HostnameClaim(app=AppName("crowd"), home=NodeId("0000000b"), at=0.0, org="acme")
                tx.put(HOSTNAMES, name, kept)

        await keeper.store.write(older)
        with pytest.raises(QuotaExceeded, match="organization acme has 3 of the 3"):
            await keeper.keep(NAME, "shop", "acme")
        assert keeper.counted() == keeper.there()


async def test_a_name_of_an_app_that_is_not_there_is_not_kept(town: Town) -> None:
    with pytest.raises(NotFound):
        await put(next(iter(town.hosts.values())), "shop-9")
    assert kept_for(town) == set()
