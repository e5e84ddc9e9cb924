"""`Replica`: this node's catalog at work. Joins the engine, the storage, which one task has to itself, and the mesh, of
which it knows no more than how to send, to ask, and who is there. Decides nothing: see engine.py and replication.py.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hawker.catalog.change import Position, Scope, Token
from hawker.catalog.contract import (
    Committed,
    LocalTransaction,
    OnTouched,
    ResultTable,
    RowChange,
    Statement,
    Storage,
    Touched,
)
from hawker.catalog.engine import GRACE_S, ReplicationEngine
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.http.service import Vitals
from hawker.catalog.jobs import Apply, Job, JobResult, RaiseFence, Serve, perform
from hawker.catalog.memory_storage import touched
from hawker.catalog.messages import Pull, PullAnswer, SnapshotAsk, SnapshotRead, decode, encode
from hawker.catalog.snapshots import SnapshotExchange
from hawker.catalog.write_queue import QueuedCall, QueuedTransaction, WriteQueue, run_all
from hawker.clock import Clock
from hawker.errors import BadRequest, HawkerError, NotServed, Unavailable
from hawker.fair.threads import Pool
from hawker.fair.threads import in_thread as in_pool
from hawker.ids import NodeId
from hawker.token_bucket import Allowance, TokenBucket

BYTES_PER_S = 10 << 20
"""Bytes per second that this node's catalog sends as messages."""
QUEUE_BYTES = 16 << 20
"""Bytes that may wait to be sent."""


class SendQueue:
    """Messages on their way out, at most `per_s` bytes per second. When more than `queue` bytes wait, the oldest
    message is dropped: its receiver finds by anti-entropy what it missed."""

    def __init__(self, clock: Clock, *, per_s: float = BYTES_PER_S, queue: int = QUEUE_BYTES) -> None:
        self._clock = clock
        self._bucket = TokenBucket(Allowance(per_s=per_s, burst=per_s))
        self._most = queue
        self._queue: deque[tuple[NodeId, bytes]] = deque()
        self.bytes = 0
        self.dropped = 0

    def put(self, to: NodeId, raw: bytes) -> None:
        self._queue.append((to, raw))
        self.bytes += len(raw)
        while self.bytes > self._most:
            self._shift()
            self.dropped += 1

    def take(self) -> list[tuple[NodeId, bytes]]:
        """The messages that may go now."""
        found: list[tuple[NodeId, bytes]] = []
        while self._queue and self._bucket.take(len(self._queue[0][1]), self._clock.monotonic()):
            found.append(self._shift())
        return found

    def wait_s(self) -> float:
        """The seconds until more may go; endless with nothing waiting."""
        if not self._queue:
            return float("inf")
        return self._bucket.wait_s(len(self._queue[0][1]), self._clock.monotonic())

    def _shift(self) -> tuple[NodeId, bytes]:
        first = self._queue.popleft()
        self.bytes -= len(first[1])
        return first


T = TypeVar("T")
S = TypeVar("S", bound=Storage)

TXS_PER_S, TXS_AT_ONCE = 1000, 2000
SETTLE_S = 10.0
ASK_S = 15.0
ANSWER_S = 30.0
NAP_S = 1.0
LOOK_S = 1.0
TRY_S = 5.0

_log = logging.getLogger("hawker.catalog")


class StorageRunner(Protocol):
    """Runs what blocks, one call at a time."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


async def in_thread(work: Callable[[], T]) -> T:
    return await in_pool(Pool.REPLICA, work)


class Replica(Generic[S]):
    """Keeps `contract.Catalog`. Used within `running()`, in one event loop. `send` and `ask` are the mesh's; `reads`
    answers queries and blocks, in the worker's turn when it is not given; `subscribes` is that of live queries."""

    def __init__(
        self,
        me: NodeId,
        region: str,
        storage: S,
        clock: Clock,
        *,
        send: Callable[[NodeId, bytes], None],
        ask: Callable[[NodeId, bytes, float], Awaitable[bytes]],
        reads: Callable[[Statement, float], ResultTable] | None = None,
        subscribes: Callable[[Statement], AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]]
        | None = None,
        run: StorageRunner = in_thread,
        grace_s: float = GRACE_S,
        snapshots: SnapshotExchange | None = None,
    ) -> None:
        self._storage, self._clock, self._run = storage, clock, run
        self._send, self._ask_over = send, ask
        self._reads, self._subscribes, self._snapshots = reads, subscribes, snapshots
        positions = {scope: storage.positions(scope) for scope in Scope}
        self.engine = ReplicationEngine(me, region, positions, clock, proven=storage.proven(), grace_s=grace_s)
        self._send_queue = SendQueue(clock)
        self._bucket = TokenBucket(Allowance(per_s=TXS_PER_S, burst=TXS_AT_ONCE))
        self._calls = WriteQueue()
        self._answers: dict[int, QueuedCall[PullAnswer | None]] = {}
        self._listeners: list[OnTouched] = []
        self._wake, self._moved = anyio.Event(), anyio.Event()
        self._tasks: TaskGroup | None = None
        self._stuck: Job | None = None
        self._again_at = 0.0
        known = sum(len(of_scope) for of_scope in positions.values())
        self._fresh = known <= len(positions)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Works until the end, then closes the storage in good order."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._work)
                if self._snapshots is not None:
                    tasks.start_soon(self._catch_up, self._snapshots)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                self._calls.stop()
                if self._snapshots is not None:
                    self._snapshots.close()
                await self._run(self._storage.close)

    # what the mesh brings

    def on_member(self, node: NodeId, *, region: str, alive: bool, rtt_s: float = 0.0) -> None:
        """Tells the engine what gossip believes of a node; a node that is suspected is still alive."""
        if alive:
            self.engine.tell(ReplicaPeer(node, region, rtt_s))
        else:
            self.engine.lose(node)
        self._stir()

    def on_message(self, sender: NodeId, raw: bytes) -> None:
        self.engine.receive(sender, raw)
        self._stir()

    async def on_request(self, sender: NodeId, raw: bytes) -> bytes:
        """Answers a question of another node over a stream; nothing when this node is too busy. Raises `BadRequest`."""
        try:
            message = decode(raw)
            if self._snapshots is not None and isinstance(message, SnapshotAsk | SnapshotRead):
                return await self._snapshots.answer(message)
            number = self.engine.ask(sender, message)
        except ValueError as error:
            raise BadRequest(f"the catalog cannot read this: {error}") from error
        waiting = self._answers[number] = QueuedCall(lambda: None)
        self._stir()
        try:
            with anyio.fail_after(ANSWER_S):
                parts = await waiting.wait()
        except TimeoutError as error:
            raise Unavailable("the catalog is too busy to answer; ask another node") from error
        finally:
            self._answers.pop(number, None)
        return encode(parts) if parts is not None else b""

    async def forget(self, origin: NodeId) -> int:
        """Forgets a node: its rows go, here and everywhere, and it is not believed again before a newer epoch. Returns
        the epoch up to which it is ignored."""
        if origin == self.engine.me:
            raise BadRequest("a node cannot forget itself; ask another one to")
        epoch = self.engine.forget(origin)
        self._stir()
        return epoch

    # what Hawker asks

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        return (await self.commit(statements)).token

    async def commit(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> Committed:
        """A local transaction, on disk and on its way. Raises as `Storage.commit`, and `Unavailable` when there are too
        many, or while this node still finds out what it has published before."""
        await self._settled()
        if not self._bucket.take(1, self._clock.monotonic()):
            raise Unavailable(f"more than {TXS_PER_S} transactions a second; put more into each, or try in a moment")
        local = LocalTransaction(statements=tuple(statements), at=self._clock.now(), timeout_s=timeout_s)
        return await self._turn(QueuedTransaction(self._storage, local, self._committed))

    def _committed(self, committed: Committed) -> None:
        self.engine.committed(committed.txs)
        self._flush()
        self._tell(touched({(op.table, op.key) for tx in committed.txs for op in tx.ops}))

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        if self._reads is not None:
            return await in_pool(Pool.QUERIES, self._reads, statement, timeout_s)
        return await self.do(lambda storage: storage.query(statement))

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        if self._subscribes is None:
            raise NotServed("this catalog has no live queries")
        return self._subscribes(statement)

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        with anyio.move_on_after(timeout_s):
            while not self.engine.reached(token):
                await self._moved.wait()
            return True
        return self.engine.reached(token)

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    async def do(self, work: Callable[[S], T], *, touches: bool = False) -> T:
        """Run this with the storage, in its turn; `touches` when readers may see anything differently after it."""
        everything = Touched(tables={}, everything=touches)
        return await self._turn(QueuedCall(lambda: work(self._storage), lambda result: self._tell(everything)))

    async def _turn(self, call: QueuedCall[T]) -> T:
        self._calls.put(call)
        self._wake.set()
        return await call.wait()

    def vitals(self) -> Vitals:
        engine = self.engine
        return Vitals(
            gaps=engine.gaps,
            members=engine.peers + 1,
            p99_lag=engine.lag.percentile(0.99),
            queue_size=engine.queued,
        )

    async def _settled(self) -> None:
        if self.engine.settled:
            return
        with anyio.move_on_after(SETTLE_S):
            while not self.engine.settled:
                await self._moved.wait()
        if not self.engine.settled:
            raise Unavailable("the catalog is finding out what this node has published before; try again in a moment")

    # the worker

    async def _work(self) -> None:
        """Calls of this process and what replication wants, in turn; one at a time."""
        while True:
            unsettled = not self.engine.settled
            due = self.engine.tick()
            self._flush()
            if unsettled and self.engine.settled:
                self._tell_waiters()
            if calls := self._calls.take():
                await self._serve_calls(calls)
            if (job := self._next_job()) is not None:
                await self._do_job(job)
            elif not calls:
                await self._nap(due)

    async def _nap(self, due: float) -> None:
        if self._stuck is not None:
            due = min(due, self._again_at)
        wait = min(due - self._clock.monotonic(), self._send_queue.wait_s(), NAP_S)
        with anyio.move_on_after(max(0.0, wait)):
            await self._wake.wait()
        self._wake = anyio.Event()

    async def _serve_calls(self, calls: Sequence[QueuedCall[Any]]) -> None:
        try:
            await self._run(partial(run_all, calls))
        finally:
            for call in calls:
                call.end()

    def _next_job(self) -> Job | None:
        """One that failed is done again after a while, before the storage is asked to write anything else."""
        if self._stuck is not None and self._again_at <= self._clock.monotonic():
            return self._stuck
        return self.engine.next_job()

    async def _do_job(self, job: Job) -> None:
        began = self._clock.monotonic()
        try:
            done = await self._run(lambda: perform(self._storage, job))
        except Unavailable as error:
            self._failed(job, error)
            return
        if job is self._stuck:
            self._stuck, self.engine.stalled = None, False
            _log.info("the catalog is written again")
        if isinstance(job, Apply):
            ops = sum(len(item.ops) for item in job.batch)
            self.engine.slices.took(ops, self._clock.monotonic() - began)
        self.engine.finish(job, done)
        self._tell_waiters()
        self._flush()
        self._tell(_touched_by(job, done))

    def _failed(self, job: Job, error: Unavailable) -> None:
        """Nothing was changed. Who asked for something asks another node; all else waits for the disk."""
        if isinstance(job, Serve):
            self.engine.finish(job, JobResult())
            self._flush()
            return
        if self._stuck is None:
            _log.error("the catalog cannot be written: what other nodes say waits", extra={"reason": str(error)})
        self._stuck, self.engine.stalled = job, True
        self._again_at = self._clock.monotonic() + NAP_S

    def _tell(self, what: Touched) -> None:
        if what.tables or what.everything:
            for listener in [*self._listeners]:
                listener(what)

    def _tell_waiters(self) -> None:
        """Some stream is further, or this node may write."""
        self._moved.set()
        self._moved = anyio.Event()

    def _stir(self) -> None:
        """The engine was told something: there may be more to send and to do."""
        self._flush()
        self._wake.set()

    def _flush(self) -> None:
        """Hand to the mesh what the engine left for it."""
        engine = self.engine
        for to, message in engine.out:
            raw = encode(message)
            for node in to:
                self._send_queue.put(node, raw)
        engine.out.clear()
        for node, raw in self._send_queue.take():
            self._send(node, raw)
        for number, parts in engine.answers:
            if (waiting := self._answers.get(number)) is not None:
                waiting.result = parts
                waiting.done.set()
        engine.answers.clear()
        questions = [*engine.questions]
        engine.questions.clear()
        for whom, scope, pull in questions:
            if self._tasks is not None:
                self._tasks.start_soon(self._question, whom, scope, pull)

    async def _catch_up(self, snapshots: SnapshotExchange) -> None:
        """Far behind, take a snapshot of somebody near; if that does not work, of somebody else after a while."""
        while True:
            await self._clock.sleep(LOOK_S)
            near = self.engine.scopes[Scope.REGION].peers.alive
            whom, scopes = (near, [*Scope]) if near else (self.engine.scopes[Scope.GLOBAL].peers.alive, [Scope.GLOBAL])
            few = self.engine.gaps < (snapshots.fresh if self._fresh else snapshots.far)
            if few or self.engine.stalled or not whom:
                continue
            self.engine.hold(pulls=True)
            try:
                await self._take_snapshot(snapshots, whom[int(self._clock.random() * len(whom))], scopes)
            except HawkerError as error:
                _log.warning("no snapshot of the catalog taken", extra={"reason": str(error)})
                await self._clock.sleep(TRY_S)
            finally:
                self.engine.hold(pulls=False)

    async def _take_snapshot(self, snapshots: SnapshotExchange, whom: NodeId, scopes: Sequence[Scope]) -> None:
        what = await snapshots.take(whom, scopes)
        await self._turn(QueuedCall(partial(self._positions, scopes), self._resume))
        self._fresh = False
        self._tell(what)

    def _positions(self, scopes: Sequence[Scope]) -> dict[Scope, dict[NodeId, Position]]:
        return {scope: dict(self._storage.positions(scope)) for scope in scopes}

    def _resume(self, found: dict[Scope, dict[NodeId, Position]]) -> None:
        for scope, positions in found.items():
            for origin, position in positions.items():
                if origin != self.engine.me:
                    self.engine.scopes[scope].moved(origin, position)
        self._tell_waiters()
        self._stir()

    async def _question(self, whom: NodeId, scope: Scope, pull: Pull) -> None:
        parts: PullAnswer | None = None
        try:
            answer = await self._ask_over(whom, encode(pull), ASK_S)
            found = decode(answer) if answer else None
            parts = found if isinstance(found, PullAnswer) else None
        except (HawkerError, ValueError):
            parts = None  # somebody else is asked
        self.engine.answered(whom, scope, parts)
        self._stir()


def _touched_by(job: Job, done: JobResult) -> Touched:
    if done.outcome is not None:
        return done.outcome.touched
    return Touched(tables={}, everything=isinstance(job, RaiseFence))
