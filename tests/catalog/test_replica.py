from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio
import pytest

from hawker.catalog.change import Delta, ReplicatedTx, Scope, Token
from hawker.catalog.contract import ApplyOutcome, Statement, Touched
from hawker.catalog.memory_storage import MemoryStorage, MemoryTable, remove, upsert
from hawker.catalog.messages import Pull, Want, encode
from hawker.catalog.replica import TXS_AT_ONCE, Replica
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, Unavailable
from hawker.ids import NodeId

SCHEMA = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
    "nodes": MemoryTable(Scope.GLOBAL, ("node",), ("region",)),
}
A, B, C = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
LONG_S = 60.0
T = TypeVar("T")


class Wire:
    """A mesh in one process, without loss."""

    def __init__(self) -> None:
        self.replicas: dict[NodeId, Replica[MemoryStorage]] = {}

    def send(self, sender: NodeId) -> Callable[[NodeId, bytes], None]:
        def send(to: NodeId, raw: bytes) -> None:
            if to in self.replicas:
                self.replicas[to].on_message(sender, raw)

        return send

    def ask(self, sender: NodeId) -> Callable[[NodeId, bytes, float], Awaitable[bytes]]:
        async def ask(to: NodeId, raw: bytes, timeout_s: float) -> bytes:
            return await self.replicas[to].on_request(sender, raw)

        return ask


@asynccontextmanager
async def fleet(*nodes: NodeId) -> AsyncIterator[Wire]:
    wire = Wire()
    async with AsyncExitStack() as stack:
        for node in nodes:
            await start(wire, node, stack)
        yield wire


class FullStorage(MemoryStorage):
    """On a disk that takes nothing while it is `full`, and then cannot be read either if it is `broken`."""

    def __init__(self, me: NodeId) -> None:
        super().__init__(me, SCHEMA, SystemClock())
        self.full, self.broken = False, False
        self.tried = anyio.Event()

    def apply(self, batch: Sequence[ReplicatedTx | Delta]) -> ApplyOutcome:
        if self.full:
            self.tried.set()
            raise Unavailable("the disk is full")
        return super().apply(batch)

    def delta(self, origin: NodeId, scope: Scope, after: int, max_bytes: int, *, since: int = -1) -> Delta:
        if self.broken:
            raise Unavailable("the disk cannot be read")
        return super().delta(origin, scope, after, max_bytes, since=since)


async def start(
    wire: Wire, node: NodeId, stack: AsyncExitStack, storage: MemoryStorage | None = None
) -> Replica[MemoryStorage]:
    clock = SystemClock()
    storage = storage or MemoryStorage(node, SCHEMA, clock)
    replica = Replica(node, "mad", storage, clock, send=wire.send(node), ask=wire.ask(node))
    await stack.enter_async_context(replica.running())
    for other, there in wire.replicas.items():
        replica.on_member(other, region="mad", alive=True)
        there.on_member(node, region="mad", alive=True)
    wire.replicas[node] = replica
    return replica


def machine(node: NodeId, name: str, state: str) -> Statement:
    return upsert("machines", {"node": node, "id": name, "state": state})


MACHINES = Statement(query="SELECT * FROM machines")


async def test_row_that_one_node_writes_is_read_on_the_others() -> None:
    async with fleet(A, B, C) as wire:
        token = await wire.replicas[A].transact([machine(A, "1", "started")])
        assert token is not None
        for node in (A, B, C):
            assert await wire.replicas[node].reached(token, timeout_s=LONG_S)
            answer = await wire.replicas[node].query(MACHINES)
            assert answer.rows == ((A, "1", "started"),)


async def test_listeners_hear_which_keys_changed_here_and_there() -> None:
    heard: list[Touched] = []
    async with fleet(A, B) as wire:
        stop = wire.replicas[B].listen(heard.append)
        token = await wire.replicas[A].transact([machine(A, "1", "started")])
        assert token is not None and await wire.replicas[B].reached(token, timeout_s=LONG_S)
        assert {"machines": frozenset({(A, "1")})} in [dict(each.tables) for each in heard]
        await wire.replicas[B].transact([machine(B, "2", "started")])
        assert {"machines": frozenset({(B, "2")})} in [dict(each.tables) for each in heard]
        stop()
        count = len(heard)
        await wire.replicas[B].transact([remove("machines", {"node": B, "id": "2"})])
        assert len(heard) == count


async def test_a_fresh_node_gets_all_there_is() -> None:
    async with fleet(A, B) as wire, AsyncExitStack() as stack:
        for number in range(300):
            await wire.replicas[A].transact([machine(A, str(number), "x" * 4000)])
        token = await wire.replicas[B].transact([machine(B, "1", "started")])
        fresh = await start(wire, C, stack)
        assert token is not None and await fresh.reached(token, timeout_s=LONG_S)
        last = Token(origin=A, epoch=wire.replicas[A].engine.position(Scope.REGION, A).epoch, version=300)
        assert await fresh.reached(last, timeout_s=LONG_S)
        assert len((await fresh.query(MACHINES)).rows) == 301


async def test_a_row_of_another_node_cannot_be_written() -> None:
    async with fleet(A) as wire:
        with pytest.raises(BadRequest):
            await wire.replicas[A].transact([machine(B, "1", "started")])


async def test_token_not_heard_of_in_time_is_not_reached() -> None:
    async with fleet(A) as wire:
        assert not await wire.replicas[A].reached(Token(origin=B, epoch=1, version=1), timeout_s=0.0)


async def test_a_node_that_writes_too_much_is_told_to_wait() -> None:
    wire, clock = Wire(), ManualClock()  # time stands still
    replica = Replica(A, "mad", MemoryStorage(A, SCHEMA, clock), clock, send=wire.send(A), ask=wire.ask(A))
    async with replica.running():
        for _ in range(TXS_AT_ONCE):
            await replica.transact([machine(A, "1", "started")])
        with pytest.raises(Unavailable, match="a second"):
            await replica.transact([machine(A, "1", "stopped")])


async def test_a_forgotten_node_comes_back_with_all_its_rows_in_a_newer_epoch() -> None:
    async with fleet(A, B, C) as wire:
        token = await wire.replicas[A].transact([machine(A, "1", "started")])
        assert token is not None
        assert await wire.replicas[B].reached(token, timeout_s=LONG_S)
        fence = await wire.replicas[B].forget(A)
        assert fence >= token.epoch
        with anyio.fail_after(LONG_S):
            while wire.replicas[C].engine.position(Scope.REGION, A).epoch <= fence:
                await wire.replicas[C].do(lambda storage: None)
        again = Token(origin=A, epoch=wire.replicas[C].engine.position(Scope.REGION, A).epoch, version=1)
        assert await wire.replicas[C].reached(again, timeout_s=LONG_S)
        assert (await wire.replicas[C].query(MACHINES)).rows == ((A, "1", "started"),)


async def test_a_node_does_not_forget_itself() -> None:
    async with fleet(A) as wire:
        with pytest.raises(BadRequest):
            await wire.replicas[A].forget(A)


async def test_health_is_told_in_numbers() -> None:
    async with fleet(A, B) as wire:
        token = await wire.replicas[A].transact([machine(A, "1", "started")])
        assert token is not None and await wire.replicas[B].reached(token, timeout_s=LONG_S)
        with anyio.fail_after(LONG_S):
            while (vitals := wire.replicas[B].vitals()).gaps + vitals.queue_size > 0:
                await wire.replicas[B].do(lambda storage: None)
        assert vitals.members == 2
        assert vitals.p99_lag is not None


async def test_an_unreadable_question_is_the_askers_fault() -> None:
    async with fleet(A) as wire:
        with pytest.raises(BadRequest):
            await wire.replicas[A].on_request(B, b"\xff")


async def test_a_node_that_proves_its_file_goes_on_in_its_epoch() -> None:
    clock = SystemClock()
    storage = MemoryStorage(A, SCHEMA, clock)
    for scope in Scope:
        storage.renew(scope, 5)
    wire = Wire()
    replica = Replica(A, "mad", storage, clock, send=wire.send(A), ask=wire.ask(A))
    async with replica.running():
        with anyio.fail_after(LONG_S):
            token = await replica.transact([machine(A, "1", "started")])
    assert token == Token(origin=A, epoch=5, version=1)
    assert storage.image.whole


async def test_a_call_whose_turn_is_called_off_hears_that_the_catalog_stops() -> None:
    clock, wire = SystemClock(), Wire()
    storage = MemoryStorage(A, SCHEMA, clock)
    begun = anyio.Event()
    blocks = False

    async def run(work: Callable[[], T]) -> T:
        if blocks:
            begun.set()
            await anyio.sleep_forever()
        return work()

    replica = Replica(A, "mad", storage, clock, send=wire.send(A), ask=wire.ask(A), run=run)

    async def write() -> None:
        with pytest.raises(Unavailable, match="is stopping"):
            await replica.transact([upsert("nodes", {"node": A, "region": "mad"})])

    async with anyio.create_task_group() as tasks, replica.running():
        await replica.transact([upsert("nodes", {"node": A, "region": "fra"})])
        blocks = True
        tasks.start_soon(write)
        await begun.wait()
        blocks = False


async def test_full_disk_holds_up_what_others_say_and_nothing_else() -> None:
    full, heard = FullStorage(B), list[Touched]()
    with anyio.fail_after(LONG_S):
        async with fleet(A) as wire, AsyncExitStack() as stack:
            a, b = wire.replicas[A], await start(wire, B, stack, full)
            await b.transact([machine(B, "b", "started")])
            full.full = True
            token = await a.transact([machine(A, "a", "started")])
            await full.tried.wait()
            full.tried = anyio.Event()
            again = await b.transact([machine(B, "b", "stopped")])
            c = await start(wire, C, stack)
            assert token is not None and again is not None
            assert await c.reached(again, timeout_s=LONG_S)
            await full.tried.wait()
            assert not b.engine.reached(token) and b.engine.stalled
            b.listen(heard.append)
            full.full = False
            last = await a.transact([machine(A, "a2", "started")])
            assert last is not None and await b.reached(last, timeout_s=LONG_S)
            assert not b.engine.stalled
    assert (A, "a") in {key for each in heard for key in each.tables.get("machines", ())}


async def test_question_that_a_disk_cannot_answer_is_answered_with_nothing() -> None:
    full = FullStorage(B)
    with anyio.fail_after(LONG_S):
        async with fleet() as wire, AsyncExitStack() as stack:
            b = await start(wire, B, stack, full)
            await b.transact([machine(B, "b", "started")])
            asked = encode(Pull(scope=Scope.REGION, wants=(Want(origin=B, epoch=0, after=-1),), max_bytes=1 << 20))
            full.broken = True
            assert await b.on_request(A, asked) == b""
            full.broken = False
            assert await b.on_request(A, asked) != b""
