"""Facts about whose the numbers of private networks are."""

import hashlib
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import pytest

from hawker.app import network_id, network_ids
from hawker.errors import Unprocessable
from hawker.ids import AppName
from hawker.netpolicy import private_networks
from hawker.netpolicy.private_networks import keep, number_of, settle, settled
from hawker.record.app import APPS, AppRecord, NetworkOwner
from hawker.store.contract import Store
from hawker.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    await store.close()


def app(name: str, org: str, network: str, number: int, created_at: float = 1.0) -> AppRecord:
    return AppRecord(
        id=name, number=1, name=AppName(name), org=org, network=network, network_id=number, created_at=created_at
    )


def test_the_first_number_is_the_one_of_old() -> None:
    first, second, *_ = islice(network_ids("acme", "default"), 3)
    assert first == network_id("acme", "default") == int.from_bytes(hashlib.sha256(b"acme/default").digest()[:4], "big")
    assert second == int.from_bytes(hashlib.sha256(b"acme/default/1").digest()[:4], "big")


async def test_a_pair_has_its_number_for_good(store: Store) -> None:
    first = await store.write(lambda tx: number_of(tx, "acme", "default"))
    assert first == network_id("acme", "default")
    assert await store.write(lambda tx: number_of(tx, "acme", "default")) == first
    assert settled(store, NetworkOwner(org="acme", network="default")) == first
    assert settled(store, NetworkOwner(org="acme", network="other")) is None


async def test_a_name_that_comes_to_anothers_number_gets_the_next(store: Store) -> None:
    victim = NetworkOwner(org="victim", network="default")
    first, second, *_ = islice(network_ids("thief", "found-by-search"), 2)
    assert await store.write(lambda tx: keep(tx, first, victim)) == victim
    assert await store.write(lambda tx: number_of(tx, "thief", "found-by-search")) == second
    assert await store.write(lambda tx: keep(tx, first, victim)) == victim


async def test_a_number_that_an_app_had_before_there_were_claims_is_its_networks(store: Store) -> None:
    number = network_id("acme", "default")
    old, late = app("old", "acme", "default", number, 1.0), app("late", "thief", "lab", number, 2.0)
    for each in (late, old):
        await store.write(lambda tx: tx.put(APPS, each.name, each))  # noqa: B023
    kept = await store.write(lambda tx: keep(tx, number, NetworkOwner(org="thief", network="lab")))
    assert (kept.org, kept.network) == ("acme", "default")
    assert await store.write(lambda tx: number_of(tx, "acme", "default")) == number


async def test_a_majority_s_number_goes_before_the_computed_one(store: Store) -> None:
    owner = NetworkOwner(org="acme", network="default")
    await store.write(lambda tx: settle(tx, 77, owner))
    assert await store.write(lambda tx: number_of(tx, "acme", "default")) == 77


async def test_an_organization_claims_so_many_and_takes_nothing_from_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_networks, "MAX_NETWORKS_OF_ORG", 2)
    for org, network in (("a", "one"), ("a", "two"), ("a/b", "one"), ("a", "one")):
        await store.write(lambda tx: number_of(tx, org, network))  # noqa: B023
    with pytest.raises(Unprocessable, match="use the name of a network that it has"):
        await store.write(lambda tx: number_of(tx, "a", "three"))
    assert settled(store, NetworkOwner(org="a", network="three")) is None
    await store.write(lambda tx: number_of(tx, "a/b", "two"))
    await store.write(lambda tx: number_of(tx, "a", "two"))
