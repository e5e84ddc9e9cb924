"""Two nodes over a network in memory, in virtual time: what the one tells its catalog, the other one reads."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from hawker.catalog.change import Position, Scope, Token
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement, Touched
from hawker.catalog.mirror import Mirror
from hawker.catalog.replica import Replica
from hawker.catalog.storage import MemberRow as Row
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.fleet.gossip_bridge import (
    LOOK_EVERY_S,
    AgentMembers,
    GossipBridge,
    Members,
    MembersToReplica,
    lower_epoch,
    member_hosts,
)
from hawker.fleet.rows import KEYS, image_row, upsert
from hawker.gossip.contract import Fate, Listener, Member, NodeMeta
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.memory_network import MemoryNetwork
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock
from tests.fleet.desk import ME, OTHER
from tests.waiting import eventually
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


T = TypeVar("T")
WITHIN_S = 120.0
IMAGES = Statement(query="SELECT node, digest FROM images")
MEMBERS = Statement(query="SELECT host, state FROM __corro_members ORDER BY host")


async def here(work: Callable[[], T]) -> T:
    return work()


class Stand:
    """One node: gossip and catalog, met."""

    def __init__(self, node: NodeId, place: Path, network: MemoryNetwork) -> None:
        clock = LoopClock()
        self.meeting: GossipBridge[SqliteStorage] = GossipBridge()
        storage = SqliteStorage(place / f"{node}.db", node, clock)
        self.replica: Replica[SqliteStorage] = Replica(
            node, "mad", storage, clock, send=self.meeting.send, ask=self.meeting.ask, run=here
        )
        self.members = Members(lambda: self.gossip, MembersToReplica(self.replica), clock, lambda some: None)
        listener = Listener(
            on_member=self.members.heard,
            on_message=self.meeting.on_message,
            on_request=self.meeting.on_request,
            on_forget=self.meeting.on_forget,
        )
        self.gossip = GossipNode(
            node=node,
            cluster="c",
            keyring=GossipKeyring(keys={1: bytes(32)}, primary=1),
            transport=network.transport(f"{node}:1"),
            advertise=None,
            meta=NodeMeta(region="mad", api=f"http://{node}"),
            clock=clock,
            listener=listener,
        )
        self.meeting.gossip, self.meeting.replica = self.gossip, self.replica

    async def has(self, query: Statement, *rows: tuple[str, ...]) -> None:
        async def there() -> bool:
            return (await self.replica.query(query)).rows == rows

        await eventually(there, WITHIN_S)


@asynccontextmanager
async def two(place: Path) -> AsyncIterator[tuple[Stand, Stand]]:
    network = MemoryNetwork(LoopClock())
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        await tasks.start(network.serve)
        stands = []
        for node in (ME, OTHER):
            stand = Stand(node, place, network)
            await tasks.start(stand.gossip.serve)
            await stack.enter_async_context(stand.replica.running())
            tasks.start_soon(stand.members.serve)
            stands.append(stand)
        await stands[1].gossip.join([f"{ME}:1"])
        yield stands[0], stands[1]
        tasks.cancel_scope.cancel()


async def test_news_of_one_node_is_read_and_forgotten_by_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        await one.has(MEMBERS, (ME, "alive"), (OTHER, "alive"))
        await other.replica.transact([upsert(image_row(OTHER, "d"))])
        await one.has(IMAGES, (OTHER, "d"))
        before = other.replica.engine.position(Scope.REGION, OTHER).epoch

        # Forgotten, though it lives: it hears of it, and tells all again in a newer epoch.
        epoch = await one.replica.forget(OTHER)
        one.gossip.forget(OTHER, epoch)
        stream = other.replica.engine
        await eventually(lambda: stream.position(Scope.REGION, OTHER).epoch > before, WITHIN_S)
        await one.has(IMAGES, (OTHER, "d"))


async def test_only_another_state_is_a_change_of_members(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _):
        await one.has(MEMBERS, (ME, "alive"), (OTHER, "alive"))
        heard: list[Touched] = []
        one.replica.listen(heard.append)
        await LoopClock().sleep(30)
        assert heard == []


async def test_without_a_catalog_of_its_own_a_node_passes_over_what_is_for_one() -> None:
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    meeting.on_message(OTHER, b"x")
    meeting.on_forget(OTHER, 1)
    with pytest.raises(Unavailable, match="keeps no catalog"):
        await meeting.on_request(OTHER, b"x")


class Table:
    """A catalog that remembers what it was told to do."""

    def __init__(self) -> None:
        self.told: list[Statement] = []

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        self.told += statements
        return None

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        raise AssertionError("nothing is asked")

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        raise AssertionError("nothing is asked")

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        raise AssertionError("nothing is asked")

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        raise AssertionError("nothing is asked")


async def test_at_an_agent_a_forgotten_nodes_rows_are_deleted_and_each_fence_is_above_the_last() -> None:
    table, clock = Table(), ManualClock()
    mirror = Mirror(table, clock)
    saved: list[dict[NodeId, int]] = []
    members = AgentMembers(ME, mirror, clock, {}, lambda fences: saved.append(dict(fences)))
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    meeting.members = members
    fence = await members.forget(OTHER)
    assert {(each.query, each.params) for each in table.told} == {
        (f"DELETE FROM {name} WHERE node = ?", (OTHER,)) for name in KEYS
    }
    meeting.on_forget(OTHER, fence)
    assert mirror.rows("SELECT origin, forgotten FROM __c_origin") == [(OTHER, fence)]
    meeting.on_forget(OTHER, fence)
    assert saved == [{OTHER: fence}], "once"
    again = await members.forget(OTHER)
    assert again > fence + 1, "which is the epoch in which it came back, whatever the clock says"


async def test_a_node_that_hears_of_its_own_fence_rises_above_it() -> None:
    clock = ManualClock()
    members = AgentMembers(ME, Mirror(Table(), clock), clock, {}, lambda fences: None)
    members.on_member(OTHER, region="mad", alive=True)
    await members.set_members([Row(host=OTHER, state="alive", since=1.0)])
    assert members.own_position(Scope.REGION).epoch == 0
    members.on_forget(ME, 77)
    assert {members.own_position(scope).epoch for scope in Scope} == {78}


async def test_fences_outlive_the_node_that_heard_of_them() -> None:
    clock, before, after = ManualClock(), Mirror(Table(), ManualClock()), Mirror(Table(), ManualClock())
    saved: dict[NodeId, int] = {}
    first = AgentMembers(ME, before, clock, {}, saved.update)
    first.on_forget(OTHER, 5)
    first.on_forget(ME, 77)
    second = AgentMembers(ME, after, clock, saved, saved.update)
    assert after.rows("SELECT origin, forgotten FROM __c_origin") == [(OTHER, 5)]
    assert second.own_position(Scope.REGION).epoch == 78
