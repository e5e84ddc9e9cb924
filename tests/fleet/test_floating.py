"""Who has a floating address, and what this node does about it."""

from collections.abc import Collection, Sequence
from ipaddress import ip_network

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.contract import ResultTable, Statement
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.fleet.floating import EVERY_S, START_S, FloatingAddresses, holder_of
from hawker.ids import NodeId
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
NODES = [NodeId(f"{number:08x}") for number in range(8)]
ME, OTHER, THIRD = NODES[:3]
ADDRESSES = [f"192.0.2.{number}" for number in range(32)]


@given(st.sampled_from(ADDRESSES), st.permutations(NODES), st.integers(1, len(NODES)))
def test_every_node_comes_to_the_same_holder(address: str, nodes: list[NodeId], count: int) -> None:
    some = nodes[:count]
    assert holder_of(address, some) == holder_of(address, sorted(some)) in some


@given(st.sampled_from(ADDRESSES), st.sampled_from(NODES))
def test_addresses_of_others_stay_where_they_are_when_a_node_goes(address: str, gone: NodeId) -> None:
    before, after = holder_of(address, NODES), holder_of(address, [node for node in NODES if node != gone])
    assert before in (gone, after)


def test_addresses_spread_and_nobody_has_one_where_nobody_is() -> None:
    assert {holder_of(address, NODES) for address in ADDRESSES} == set(NODES)
    assert holder_of("192.0.2.1", ()) is None


class Device:
    """Keeps `AddressDevice`."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.told: list[str] = []
        self.refuses = False

    def held(self) -> frozenset[str]:
        return frozenset(self.there)

    def take(self, address: str) -> None:
        if self.refuses:
            raise OSError("no room")
        self.there.add(address)
        self.tell(address)

    def drop(self, address: str) -> None:
        self.there.discard(address)

    def tell(self, address: str) -> None:
        self.told.append(address)


class Rows:
    """A catalog in which apps have these addresses."""

    def __init__(self) -> None:
        self.addresses: Sequence[str] = (*ADDRESSES, "198.51.100.1", "no address")
        self.draining: Collection[NodeId] = ()
        self.silent = False

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        if self.silent:
            raise Unavailable("the catalog is away")
        values = self.draining if "draining" in statement.query else self.addresses
        return ResultTable(columns=("value",), rows=tuple((each,) for each in values))


class Played:
    def __init__(self) -> None:
        self.device, self.rows, self.edges = Device(), Rows(), [ME, OTHER, THIRD]
        network = ip_network("192.0.2.0/24")
        self.floating = FloatingAddresses(ME, [network], self.rows, lambda: self.edges, self.device, SystemClock())

    def of(self, *edges: NodeId) -> set[str]:
        return {address for address in ADDRESSES if holder_of(address, edges) == ME}


async def test_a_node_takes_what_is_its_and_gives_up_what_is_not() -> None:
    played = Played()
    await played.floating.settle()
    assert played.device.there == played.of(ME, OTHER, THIRD)
    played.edges = [ME, OTHER]
    await played.floating.settle()
    assert played.device.there == played.of(ME, OTHER)
    played.edges = [ME, OTHER, THIRD]
    await played.floating.settle()
    assert played.device.there == played.of(ME, OTHER, THIRD)
    played.rows.addresses = ()
    await played.floating.settle()
    assert not played.device.there, "a released address goes"


async def test_a_node_that_drains_gives_up_first_and_keeps_all_where_everybody_drains() -> None:
    played = Played()
    played.rows.draining = (ME,)
    await played.floating.settle()
    assert not played.device.there
    played.rows.draining = (ME, OTHER, THIRD)
    await played.floating.settle()
    assert played.device.there == played.of(ME, OTHER, THIRD)


async def test_neighbours_are_told_of_an_address_three_times() -> None:
    played = Played()
    for _ in range(6):
        await played.floating.settle()
    assert sorted(played.device.told) == sorted([*played.of(ME, OTHER, THIRD)] * 3)


async def test_a_catalog_that_cannot_be_read_and_a_refusal_change_nothing() -> None:
    played = Played()
    await played.floating.settle()
    before = set(played.device.there)
    played.rows.silent, played.edges = True, [ME]
    await played.floating.settle()
    assert played.device.there == before
    played.rows.silent, played.device.refuses = False, True
    await played.floating.settle()
    assert played.device.there == before
    played.device.refuses = False
    await played.floating.settle()
    assert played.device.there == played.of(ME)


async def test_a_node_that_ends_gives_up_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.fleet.floating.START_S", 0.0)
    played = Played()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(played.floating.serve)
        await eventually(lambda: bool(played.device.there))
        tasks.cancel_scope.cancel()
    assert not played.device.there
    assert START_S > EVERY_S
