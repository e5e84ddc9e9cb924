from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from hawker.catalog.change import Position, Scope
from hawker.catalog.storage import MemberRow as Row
from hawker.errors import Unavailable
from hawker.fleet.members import LOOK_EVERY_S, Members, lower_epoch, member_hosts
from hawker.gossip.contract import Fate, Member, NodeMeta
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock
from tests.fleet.desk import ME, OTHER
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def member(node: NodeId, fate: Fate = Fate.ALIVE, rtt_s: float = 0.0, region: str | None = "mad") -> Member:
    meta = None if region is None else NodeMeta(region=region, api="http://x")
    return Member(node=node, address="h:1", incarnation=1, fate=fate, since=3.0, rtt_s=rtt_s, epoch=2, meta=meta)


class Street:
    """Gossip and replica at once, as far as members go."""

    def __init__(self) -> None:
        self.there = [member(ME), member(OTHER, rtt_s=0.5)]
        self.told: list[tuple[NodeId, str, bool, float]] = []
        self.rows: list[list[tuple[str, str, float | None]]] = []
        self.epochs = {Scope.REGION: 0, Scope.GLOBAL: 0}
        self.declared: list[int] = []
        self.remembered: list[list[NodeId]] = []
        self.withheld: list[frozenset[str]] = []
        self.away = False

    async def withhold(self, hosts: frozenset[str]) -> None:
        self.withheld.append(hosts)

    def members(self) -> Sequence[Member]:
        return self.there

    def declare(self, *, epoch: int) -> None:
        self.declared.append(epoch)

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        self.told.append((node, region, alive, rtt_s))

    async def set_members(self, members: Sequence[Row]) -> None:
        if self.away:
            raise Unavailable("the catalog is away")
        self.rows.append([(row.host, row.state, row.rtt) for row in members])

    def own_position(self, scope: Scope) -> Position:
        return Position(epoch=self.epochs[scope])


@asynccontextmanager
async def following(street: Street) -> AsyncIterator[Members]:
    def remember(some: Sequence[Member]) -> None:
        street.remembered.append([each.node for each in some])

    members = Members(lambda: street, street, LoopClock(), remember, street.withhold)  # type: ignore[arg-type,return-value]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(members.serve)
        await LoopClock().sleep(0.2)
        yield members
        tasks.cancel_scope.cancel()


async def test_all_are_passed_on_at_once() -> None:
    street = Street()
    async with following(street):
        assert street.rows == [[(ME, "alive", None), (OTHER, "alive", 0.5)]]
        assert street.told == [(ME, "mad", True, 0.0), (OTHER, "mad", True, 0.5)]
        assert street.remembered == [[ME, OTHER]]


@pytest.mark.parametrize("fate", [Fate.DOWN, Fate.LEFT])
async def test_a_lost_member_is_told_within_a_moment(fate: Fate) -> None:
    street = Street()
    async with following(street) as members:
        street.there[1] = member(OTHER, fate)
        members.heard(street.there[1])
        assert street.told[-1] == (OTHER, "mad", False, 0.0)
        await LoopClock().sleep(0.1)
        assert street.rows[-1] == [(ME, "alive", None), (OTHER, str(fate), None)]


async def test_a_suspected_member_is_still_asked() -> None:
    street = Street()
    async with following(street) as members:
        members.heard(member(OTHER, Fate.SUSPECT))
        assert street.told[-1][2]
        members.heard(member(OTHER, region=None))
        assert street.told[-1][1] == ""


async def test_round_trips_are_looked_at_now_and_then() -> None:
    street = Street()
    async with following(street):
        street.there[1] = member(OTHER, rtt_s=0.25)
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert street.rows[-1][1] == (OTHER, "alive", 0.25)
        assert len(street.remembered) == 1


async def test_a_new_member_is_remembered() -> None:
    street = Street()
    async with following(street) as members:
        street.there.append(member(NodeId("0000000c")))
        members.heard(street.there[-1])
        await LoopClock().sleep(0.2)
        assert street.remembered == [[ME, OTHER], [ME, OTHER, "0000000c"]]


async def test_the_epoch_is_declared_once_both_streams_have_one() -> None:
    street = Street()
    async with following(street) as members:
        street.epochs[Scope.REGION] = 7
        members.heard(street.there[1])
        await LoopClock().sleep(0.2)
        assert street.declared == []
        street.epochs[Scope.GLOBAL] = 5
        members.heard(street.there[1])
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert street.declared == [5]


async def test_a_catalog_that_is_away_is_told_later() -> None:
    street = Street()
    street.away = True
    async with following(street):
        assert street.rows == []
        street.away = False
        await LoopClock().sleep(2 * LOOK_EVERY_S)
        assert street.rows


def test_an_epoch_is_as_high_as_the_lower_stream() -> None:
    assert lower_epoch({Scope.REGION: Position(epoch=3), Scope.GLOBAL: Position(epoch=9)}) == 3


def _at(node: NodeId, address: str, api: str, fate: Fate = Fate.ALIVE) -> Member:
    return Member(node=node, address=address, incarnation=1, fate=fate, meta=NodeMeta(region="mad", api=api))


def test_hosts_of_members_are_those_of_their_gossip_and_of_their_api() -> None:
    here = _at(ME, "10.0.0.1:4281", "http://203.0.113.9:4282")
    there = _at(OTHER, "[fd00::2]:4281", "http://[fd00::2]:4282", Fate.DOWN)
    assert member_hosts([here, there]) == {"10.0.0.1", "203.0.113.9", "fd00::2"}


def test_a_node_that_left_is_no_member_and_a_wrong_url_counts_for_nothing() -> None:
    left, odd = _at(ME, "10.0.0.1:1", "http://10.0.0.1", Fate.LEFT), _at(OTHER, "10.0.0.2:1", "http://[10.0.0.3")
    assert member_hosts([left, odd]) == {"10.0.0.2"}


async def test_machines_are_kept_from_members_as_they_come_and_go_also_while_the_catalog_is_away() -> None:
    street = Street()
    street.away = True
    street.there = [_at(ME, "10.0.0.1:1", "http://10.0.0.1:2")]
    async with following(street) as members:
        assert street.withheld == [{"10.0.0.1"}]
        street.there.append(_at(OTHER, "10.0.0.2:1", "http://10.0.0.2:2"))
        members.heard(street.there[1])
        await LoopClock().sleep(0.2)
        street.there[1] = _at(OTHER, "10.0.0.2:1", "http://10.0.0.2:2", Fate.LEFT)
        members.heard(street.there[1])
        await LoopClock().sleep(0.2)
    assert street.withheld == [{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}, {"10.0.0.1"}]
