"""Orders of certificates: what may be ordered, by whom, and when each is due."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import anyio
import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, DELETE_APP, AppParams, CreateAppRequest
from hawker.errors import NotFound, NotServed, Unprocessable
from hawker.feed import HTTP_01, ShownChallenge
from hawker.ids import AppName, NodeId
from hawker.record.app import CERTIFICATE_ORDERS, CERTIFICATES, CertificateOrder, CertificateRecord
from hawker.secret.acme_order import AcmeOrder, Issued
from hawker.secret.certificate_orders import (
    AGAIN_S,
    SPREAD_S,
    TRIES,
    CertificateBuyer,
    CertificateOrders,
    PlatformTurns,
    is_due,
)
from hawker.secret.certificates import PLATFORM, FarCertificate
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.store.contract import Observable, Tx
from tests.certificates import issued

pytestmark = pytest.mark.anyio
HOST = "shop.example.com"
DAY = 86_400.0


@pytest.fixture
def orders(worker: SimWorker) -> CertificateOrders:
    settings = msgspec.structs.replace(worker.parts.deps.settings, acme_directory="https://ca.example.com/dir")
    return CertificateOrders(worker.store, settings, worker.parts.deps.clock)


async def test_a_node_without_an_authority_orders_nothing(worker: SimWorker) -> None:
    plain = CertificateOrders(worker.store, worker.parts.deps.settings, worker.parts.deps.clock)
    with pytest.raises(NotServed, match="--acme-directory"):
        await plain.put(APP, HOST)


@pytest.mark.parametrize("name", ["*.example.com", "localhost", "-x.example.com", "", "a" * 300, "192.0.2.7"])
async def test_a_name_that_cannot_be_ordered_is_refused(orders: CertificateOrders, name: str) -> None:
    with pytest.raises(Unprocessable, match="hostname"):
        await orders.put(APP, name)


async def test_a_name_is_one_apps_also_when_only_ordered(worker: SimWorker, orders: CertificateOrders) -> None:
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="other", org_slug="personal"))
    certificates = worker.parts.deps.certificates
    await orders.put(APP, "Shop.example.com.")
    with pytest.raises(Unprocessable, match="another app's"):
        await orders.put("other", HOST)
    with pytest.raises(Unprocessable, match="another app's"):
        await certificates.put("other", HOST, *issued(HOST))
    with pytest.raises(NotFound):
        await orders.put("ghost", HOST)
    assert not await orders.delete("other", HOST)
    assert [order.hostname for order in orders.list(APP)] == [HOST] and orders.list("other") == []
    assert await orders.delete(APP, HOST) and orders.find(APP, HOST) is None


async def test_a_certificate_issued_after_its_order_was_taken_back_is_not_kept(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="is gone"):
        await worker.parts.deps.certificates.put(APP, HOST, *issued(HOST), ordered=True)


async def test_orders_go_with_their_app(worker: SimWorker, orders: CertificateOrders) -> None:
    await orders.put(APP, HOST)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert list(worker.store.scan(CERTIFICATE_ORDERS)) == []


async def test_an_order_that_is_put_once_more_keeps_what_the_authority_said(
    worker: SimWorker, orders: CertificateOrders
) -> None:
    first = await orders.put(APP, HOST)
    now = worker.parts.deps.clock.now()
    told = msgspec.structs.replace(
        first,
        failures=3,
        failed_at=now,
        reason="too many",
        proof=HTTP_01,
        limited_until=now + 3600.0,
        renew_at=now + DAY,
    )
    await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, HOST, told))
    again = await orders.put(APP, HOST)
    assert again == orders.find(APP, HOST) == msgspec.structs.replace(told, failures=0, failed_at=0.0, reason="")
    assert not is_due(again, None, now + 3599.0) and is_due(again, None, now + 3600.0)


async def test_a_platforms_own_order_that_is_refused_is_told_and_put_again(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps, own = worker.parts.deps, "*.apps.example.com"
    settings = msgspec.structs.replace(
        deps.settings,
        acme_directory="https://ca.example.com/dir",
        domain="apps.example.com",
        dns_zone_listen=("192.0.2.5:53",),
    )
    orders = CertificateOrders(worker.store, settings, deps.clock)
    await deps.certificates.put(APP, own, *issued(own))
    buyer = CertificateBuyer(worker.store, deps.certificates, settings, deps.clock)
    monkeypatch.setattr(buyer, "next", lambda: None)  # nobody is asked for a certificate here
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buyer.serve)
        await deps.clock.sleep(AGAIN_S / 2)
        why = f"it cannot be ordered: hostname: {own} is the app {APP}'s: remove it there"
        assert list(deps.certificates.ending()) == [(own, why)]
        await deps.certificates.delete(APP, own)
        await deps.clock.sleep(AGAIN_S)
        placed = orders.find(PLATFORM, own)
        assert placed is not None and list(deps.certificates.ending()) == []
        limited = msgspec.structs.replace(placed, failures=1, reason="no", limited_until=deps.clock.now() + DAY)
        await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, own, limited))
        await deps.clock.sleep(2 * AGAIN_S)
        assert orders.find(PLATFORM, own) == limited, "one that is there is left as it is"
        tasks.cancel_scope.cancel()


def test_when_an_order_is_due() -> None:
    order = CertificateOrder(hostname=HOST, app=AppName(APP), created_at=0.0)
    own = CertificateRecord(
        hostname=HOST, app=AppName(APP), sealed=b"", kind="ecdsa", authority="ca", not_after=90 * DAY, created_at=0.0,
        updated_at=0.0, ordered=True,
    )  # fmt: skip
    imported = msgspec.structs.replace(own, ordered=False)
    assert is_due(order, None, 0.0)
    assert not is_due(order, own, 59 * DAY) and is_due(order, own, 60 * DAY), "in its last third"
    assert not is_due(order, imported, 89 * DAY) and is_due(order, imported, 90 * DAY), "an imported one wins"
    once, often = (msgspec.structs.replace(order, failures=n, failed_at=1000.0) for n in (1, 1000))
    assert not is_due(once, None, 1239.0) and is_due(once, None, 1240.0)
    assert not is_due(often, None, DAY) and is_due(often, None, 1000.0 + DAY), "a day at most"


OWN = "api.example.com"


class PlayedKeepers:
    """Of a fleet of so many nodes."""

    def __init__(self, nodes: int) -> None:
        self._nodes = tuple(NodeId(f"node{number}") for number in range(nodes))

    def keepers(self, hostname: str) -> tuple[NodeId, ...]:
        return self._nodes[:3]

    async def keep(self, hostname: str, app: AppName, org: str) -> None:
        raise AssertionError("nobody claims what is the platform's own")

    async def affirm(self, hostname: str, app: AppName, org: str) -> None:
        raise AssertionError("nobody claims what is the platform's own")

    async def release(self, hostname: str, app: AppName) -> None:
        raise AssertionError("nobody claims what is the platform's own")


class PlatformFleet:
    """Ten nodes that know the same. Each has the order of the platform's own."""

    def __init__(self, worker: SimWorker) -> None:
        self.certificates, self.clock = worker.parts.deps.certificates, worker.parts.deps.clock
        self.certificates.meet(PlayedKeepers(10))
        self.order = CertificateOrder(hostname=OWN, app=PLATFORM, created_at=0.0)
        self.turns = [PlatformTurns(self.certificates, self.clock, NodeId(f"node{each}")) for each in range(10)]

    @property
    def ordering(self) -> int:
        """How many of them would order it now."""
        return sum(each.is_mine(self.order) for each in self.turns)

    async def first(self, within_s: float) -> int:
        """How many are the first to order it."""
        for _ in range(round(within_s / 0.1)):
            if ordering := self.ordering:
                return ordering
            await self.clock.sleep(0.1)
        return 0

    def tell(self, left_s: float, app: str = PLATFORM) -> None:
        """Another node has a certificate of 90 days, of which so much is left."""
        ends = self.clock.now() + left_s
        self.certificates.tell_far([FarCertificate(OWN, AppName(app), b"", 0.0, ends - 90 * DAY, ends)])


async def test_one_node_of_a_fleet_orders_a_certificate_of_the_platforms_own(worker: SimWorker) -> None:
    fleet = PlatformFleet(worker)
    assert fleet.ordering == 0, "it is not known yet what others have"
    assert await fleet.first(23.5) == 1
    shown = ShownChallenge(hostname=OWN, token="t", answer="a", app=PLATFORM, kind=HTTP_01)
    fleet.certificates.tell_far_challenges([shown])
    assert await fleet.first(60.0) == 0, "one is about it"
    fleet.certificates.tell_far_challenges([])
    fleet.tell(90 * DAY)
    assert await fleet.first(60.0) == 0, "one has it"
    fleet.certificates.tell_far([])
    assert await fleet.first(23.5) == 1


async def test_nodes_take_over_what_another_one_does_not_renew_each_at_its_own_moment(worker: SimWorker) -> None:
    fleet, ordering = PlatformFleet(worker), list[int]()
    for left in range(30, 6, -1):
        fleet.tell(left * DAY)
        ordering.append(fleet.ordering)
    assert ordering[:16] == [0] * 16, "the first half of the time to renew is its own"
    assert ordering[-1] == 10 and len(set(ordering)) >= 5, ordering
    fleet.tell(90 * DAY, app=APP)
    assert fleet.ordering == 0 and await fleet.first(23.5) == 1, "another app's is nothing to rely on"


async def test_a_node_renews_its_own_certificate_of_the_platforms_unless_another_ones_lasts_longer(
    worker: SimWorker,
) -> None:
    fleet = PlatformFleet(worker)
    record = await fleet.certificates.put(PLATFORM, OWN, *issued(OWN))
    assert fleet.ordering == 10, "this is about when, and the order about whether"
    fleet.tell(record.not_after - fleet.clock.now() + DAY)
    assert fleet.ordering == 0


async def test_a_fleet_of_one_waits_for_nobody_else(worker: SimWorker) -> None:
    fleet = PlatformFleet(worker)
    fleet.certificates.meet(PlayedKeepers(1))
    assert await fleet.first(3.5) == 10, "only until it would have heard of others"


async def test_a_buyer_in_a_fleet_leaves_alone_only_what_is_the_platforms_own(
    worker: SimWorker, orders: CertificateOrders
) -> None:
    fleet, deps = PlatformFleet(worker), worker.parts.deps
    buyer = CertificateBuyer(worker.store, deps.certificates, deps.settings, deps.clock, turns=fleet.turns[0])
    await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, OWN, fleet.order))
    assert buyer.next() is None
    await orders.put(APP, HOST)
    assert (found := buyer.next()) is not None and found.hostname == HOST
    await deps.clock.sleep(23.5)
    assert OWN in {order.hostname for order in (buyer.next(), buyer.next()) if order is not None}


async def test_apps_take_turns_and_each_has_so_many_tries(worker: SimWorker, orders: CertificateOrders) -> None:
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="mallory", org_slug="mallory"))
    deps = worker.parts.deps
    buyer = CertificateBuyer(worker.store, deps.certificates, deps.settings, deps.clock)
    names = [f"m{number}.example.com" for number in range(int(TRIES.burst) + 5)]
    for name in names:
        await orders.put("mallory", name)
    first = buyer.next()
    assert first is not None and first.app == "mallory"
    await orders.put(APP, HOST)
    tried = [buyer.next() for _ in range(2)]
    assert [order and order.app for order in tried] == [APP, "mallory"], "not behind all names of another app"
    await orders.delete(APP, HOST)
    tries = 2
    while buyer.next() is not None:
        tries += 1
    assert tries == TRIES.burst, "its other names wait"
    await orders.put(APP, HOST)
    mine = buyer.next()
    assert mine is not None and mine.hostname == HOST


class PlayedOrder(AcmeOrder):
    """At an authority that is not done when it is asked first, and wishes to be left alone for so long each time."""

    def __init__(self, wishes: Sequence[float], now: Callable[[], float]) -> None:
        self._wishes, self._now = list(wishes), now
        self.shown_at, self.looks = 0.0, list[float]()

    def begin(self, kinds: Sequence[str]) -> ShownChallenge | None:
        self.shown_at = self._now()
        return ShownChallenge(hostname=HOST, token="t0ken", answer="t0ken.thumb", app=AppName(APP), kind=kinds[0])

    def prove(self) -> None:
        self.looks.append(self._now())

    def look(self) -> Issued | float:
        self.looks.append(self._now())
        if self._wishes:
            return self._wishes.pop(0)
        chain, key = issued(HOST)
        return Issued(chain=chain, key=key)


class PlayedBuyer(CertificateBuyer):
    """Every order is this one."""

    order: PlayedOrder

    def _at_authority(self, directory: str, order: CertificateOrder) -> AcmeOrder:
        return self.order


def buyer_at(worker: SimWorker, *wishes: float) -> PlayedBuyer:
    deps = worker.parts.deps
    settings = msgspec.structs.replace(deps.settings, acme_directory="https://ca.example.com/dir")
    buyer = PlayedBuyer(worker.store, deps.certificates, settings, deps.clock, SPREAD_S)
    buyer.order = PlayedOrder(wishes, asyncio.get_running_loop().time)
    return buyer


async def bought(worker: SimWorker, orders: CertificateOrders, buyer: PlayedBuyer) -> CertificateOrder:
    """The order once it was tried."""
    cast(Observable, worker.store).listen(buyer.note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buyer.serve)
        await worker.parts.deps.clock.sleep(10.25)
        put = await orders.put(APP, HOST)
        there = put
        while there == put:
            await worker.parts.deps.clock.sleep(0.01)
            there = orders.find(APP, HOST) or put
        tasks.cancel_scope.cancel()
    return there


async def test_an_authority_is_asked_soon_at_first_and_never_sooner_than_it_wishes(
    worker: SimWorker, orders: CertificateOrders
) -> None:
    buyer = buyer_at(worker, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0)
    ordered = await bought(worker, orders, buyer)
    assert ordered.proof and not ordered.failures and worker.parts.deps.certificates.get(APP, HOST).ordered
    looks = buyer.order.looks
    pauses = [round(after - before, 3) for before, after in pairwise(looks)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 5.0, 1.0, 1.0]
    told_s = looks[0] - buyer.order.shown_at
    assert told_s == pytest.approx(SPREAD_S), "before edges could hear of it the proof would have failed"


async def test_an_order_is_begun_as_soon_as_it_is_there(worker: SimWorker, orders: CertificateOrders) -> None:
    buyer = buyer_at(worker)
    ordered = await bought(worker, orders, buyer)
    clock = worker.parts.deps.clock
    ordered_at = ordered.created_at - clock.now() + clock.monotonic()
    assert buyer.order.shown_at - ordered_at == pytest.approx(0.0, abs=0.01), "and not at the next look"


async def test_an_authority_that_is_never_done_is_given_up(worker: SimWorker, orders: CertificateOrders) -> None:
    ordered = await bought(worker, orders, buyer_at(worker, *[0.0] * 60, *[7 * DAY] * 60))
    assert "not done after 90 s" in ordered.reason and ordered.failures == 1
    assert not worker.parts.deps.certificates.challenges


async def test_a_certificate_that_ends_soon_is_told_with_what_keeps_it_from_being_renewed(
    worker: SimWorker, orders: CertificateOrders
) -> None:
    certificates, clock = worker.parts.deps.certificates, worker.parts.deps.clock
    record = await certificates.put(APP, HOST, *issued(HOST))
    assert list(certificates.ending()) == []
    order = CertificateOrder(hostname=HOST, app=AppName(APP), created_at=0.0, reason="no such name")
    ends = msgspec.structs.replace(record, not_after=clock.now() + 13 * DAY)
    platform = CertificateOrder(hostname="*.example.net", app=PLATFORM, created_at=0.0, reason="refused")

    def apply(tx: Tx) -> None:
        tx.put(CERTIFICATES, HOST, ends)
        for each in (order, platform):
            tx.put(CERTIFICATE_ORDERS, each.hostname, each)

    await worker.store.write(apply)
    assert list(certificates.ending()) == [
        (HOST, "13.0 days are left: no such name"),
        ("*.example.net", "there is none: refused"),
    ]
    far = FarCertificate(HOST, AppName(APP), b"", record.created_at, clock.now(), clock.now() + 90 * DAY)
    certificates.tell_far([far, msgspec.structs.replace(far, hostname="*.example.net", app=PLATFORM)])
    assert list(certificates.ending()) == [], "edges show what another node has"
