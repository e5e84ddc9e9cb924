"""Certificates of one node at the others, by way of rows as the catalog has them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.errors import Unprocessable
from hawker.feed import DNS_01, ShownChallenge
from hawker.fleet import certificates
from hawker.fleet.certificates import FleetCertificates
from hawker.fleet.rows import upsert
from hawker.ids import AppName, NodeId
from hawker.record.app import APPS, AppRecord
from hawker.secret.certificate_chain import KeyPair
from hawker.secret.certificates import Certificates, open_pair
from hawker.store.memory_store import MemoryStore
from hawker.vault import Vault
from tests.certificates import issued
from tests.fleet.desk import Desk
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
CLOCK = SystemClock()
NAME = "shop.example.com"


class Node:
    """With its own store and key, and the cluster's keys."""

    def __init__(self, number: int, desk: Desk) -> None:
        self.id = NodeId(f"{number:08x}")
        self.store = MemoryStore()
        self.vault = Vault(bytes([number]) * 32, CLOCK)
        self.own = Certificates(self.store, self.vault, CLOCK)
        self.cluster = [Vault(b"c" * 32, CLOCK)]
        self.fleet = FleetCertificates(self.id, self.own, self.store, desk, lambda: self.cluster, CLOCK)

    async def app(self, name: str) -> "Node":
        record = AppRecord(id=name, name=AppName(name), org="o", network="", network_id=1, number=1, created_at=1.0)
        await self.store.write(lambda tx: tx.put(APPS, name, record))
        return self

    async def publish(self, desk: Desk) -> None:
        source = self.fleet.source
        for key in source.every():
            await desk.transact([upsert(row) for row in source.rows(key)])

    def shown(self) -> Sequence[tuple[str, str]]:
        return sorted((each.hostname, each.app) for each in self.own.served().values())

    def pair(self, hostname: str) -> KeyPair:
        return open_pair(Vault(self.own.key, CLOCK), hostname, self.own.served()[hostname].sealed)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_another_node_shows_a_certificate_that_it_can_open_with_its_own_key(desk: Desk) -> None:
    home, other = await Node(1, desk).app("shop"), Node(2, desk)
    chain, key = issued(NAME)
    await home.own.put("shop", NAME, chain, key)
    await home.publish(desk)
    await other.fleet.read()
    assert other.shown() == [(NAME, "shop")] and other.own.list("shop") == []
    assert other.pair(NAME) == home.pair(NAME)
    rows = desk.rows("SELECT sealed FROM certificates")
    assert key not in str(rows) and "PRIVATE" not in str(rows)


async def test_news_of_the_catalog_are_read_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_EVERY_S", 3600.0)
    home, other = await Node(1, desk).app("shop"), Node(2, desk)
    await home.own.put("shop", NAME, *issued(NAME))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other.fleet.serve)
        await anyio.wait_all_tasks_blocked()
        await home.publish(desk)
        await eventually(lambda: bool(other.shown()))
        tasks.cancel_scope.cancel()
    assert desk.listeners == [], "who is gone is told nothing"


async def test_a_row_is_told_again_only_when_it_says_something_else(desk: Desk) -> None:
    home = await Node(1, desk).app("shop")
    await home.own.put("shop", NAME, *issued(NAME))
    (first,), (again,) = (tuple(home.fleet.source.rows(NAME)) for _ in range(2))
    assert first.digest == again.digest and home.fleet.source.tables == {first.at.table}
    home.cluster.insert(0, Vault(b"n" * 32, CLOCK))
    (later,) = home.fleet.source.rows(NAME)
    assert later.digest != first.digest, "sealed with the key in use"


async def test_a_new_certificate_and_the_end_of_one_arrive(desk: Desk) -> None:
    home, other = await Node(1, desk).app("shop"), Node(2, desk)
    for _ in range(2):
        await home.own.put("shop", NAME, *issued(NAME))
        await home.publish(desk)
        await other.fleet.read()
        assert other.pair(NAME) == home.pair(NAME)
    desk.rows("DELETE FROM certificates")
    await other.fleet.read()
    assert other.shown() == []


async def test_a_name_is_of_the_app_that_had_it_first_at_every_node(desk: Desk) -> None:
    home, other = await Node(1, desk).app("shop"), await Node(2, desk).app("thief")
    await home.own.put("shop", NAME, *issued(NAME))
    await other.own.put("thief", NAME, *issued(NAME))
    for node in (home, other):
        await node.publish(desk)
    for node in (home, other):
        await node.fleet.read()
        assert node.shown() == [(NAME, "shop")]
    with pytest.raises(Unprocessable, match="another app's"):
        await other.own.put("thief", NAME, *issued(NAME))


async def test_of_two_nodes_that_have_an_app_s_certificate_the_one_that_expires_last_is_shown(desk: Desk) -> None:
    """A home that is lost is still in the catalog, and the next one has renewed the certificate."""
    lost, home, other = await Node(1, desk).app("shop"), await Node(2, desk).app("shop"), Node(3, desk)
    thief = await Node(4, desk).app("thief")
    await lost.own.put("shop", NAME, *issued(NAME, end=datetime(2090, 1, 1, tzinfo=UTC)))
    await thief.own.put("thief", NAME, *issued(NAME))
    await home.own.put("shop", NAME, *issued(NAME))
    for node in (thief, home, lost):
        await node.publish(desk)
    for node in (other, home, lost):
        await node.fleet.read()
        assert node.shown() == [(NAME, "shop")]
        assert node.pair(NAME) == open_pair(Vault(home.own.key, CLOCK), NAME, home.own.get("shop", NAME).sealed)


async def test_a_certificate_sealed_with_a_key_that_is_not_here_is_left_out_until_it_is(desk: Desk) -> None:
    home, other = await Node(1, desk).app("shop"), Node(2, desk)
    home.cluster = [Vault(b"n" * 32, CLOCK)]
    await home.own.put("shop", NAME, *issued(NAME))
    await home.publish(desk)
    await other.fleet.read()
    assert other.shown() == []
    other.cluster.append(home.cluster[0])
    await other.fleet.read()
    assert other.shown() == [(NAME, "shop")]


async def test_a_proof_is_shown_at_every_node_while_an_authority_asks_for_it(desk: Desk) -> None:
    home, other = await Node(1, desk).app("shop"), Node(2, desk)
    noted: list[str] = []
    source = home.fleet.challenges(lambda _, key: noted.append(key))
    shown = ShownChallenge(hostname=NAME, token="t", answer="a", app=AppName("shop"), kind=DNS_01)
    home.own.challenge(shown)
    assert noted == [NAME] == list(source.every())
    await desk.transact([upsert(row) for row in source.rows(NAME)])
    await other.fleet.read()
    await home.fleet.read()
    assert other.own.shown_challenges == (shown,) == home.own.shown_challenges, "its own once"
    home.own.unchallenge(shown)
    assert noted == [NAME, NAME] and list(source.rows(NAME)) == []
    desk.rows("DELETE FROM challenges")
    await other.fleet.read()
    assert not other.own.shown_challenges
