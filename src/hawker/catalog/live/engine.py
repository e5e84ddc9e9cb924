"""`Live`: all live queries of one catalog. Commits are told to it by key; it looks again and tells who listens.

Queries with the same text, parameters written out, share one answer. One without listeners goes after ten minutes;
after a clean stop each is there again under the same id.
"""

import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import apsw
from anyio.abc import TaskGroup

from hawker.catalog.contract import Statement, Touched
from hawker.catalog.live.evaluation import Evaluation, QueryPlan, plan_of, read_schema
from hawker.catalog.live.feed import RING_EVENTS
from hawker.catalog.live.result_cache import ResultCache, completed_query
from hawker.catalog.live.subscription import ChangeBuffer, ChangedKeys, Subscription, TableUpdates, remove
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, NotFound, Unavailable
from hawker.fair.threads import Pool, in_thread

FLUSH_S = 0.010
FLUSH_KEYS = 1_000
IDLE_S = 600.0
SWEEP_S = 60.0
MOST = 512
_LEAST_PAUSE_S, _MOST_PAUSE_S, _PAUSE_BY_COST = 0.05, 0.25, 5.0
NO_SUBSCRIPTION = "a `from` query param was supplied, but no existing subscription found"

_log = logging.getLogger("hawker.catalog.live")


class Live:
    """`file` is the catalog's; `place` is a folder of its own. Used within `running()`, in one event loop."""

    def __init__(self, file: Path, place: Path, clock: Clock, *, ring_events: int = RING_EVENTS) -> None:
        self._file, self._place, self._clock, self._ring_events = file, place, clock, ring_events
        self._pool = ReadPool(lambda: ReadConnection(file, clock))
        self._by_sql: dict[str, Subscription] = {}
        self._by_id: dict[uuid.UUID, Subscription] = {}
        self._updates: dict[str, TableUpdates] = {}
        self._changed_keys = ChangeBuffer()
        self._woken = anyio.Event()
        self._opening = anyio.Lock()
        self._tasks: TaskGroup | None = None

    @property
    def subscriptions(self) -> list[Subscription]:
        return list(self._by_id.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restores what a clean stop left, then looks at what changes until the end, which is a clean stop."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._restore()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._follow)
                tasks.start_soon(self._sweep_often)
                try:
                    yield
                finally:
                    self._pool.interrupt()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                for subscription in self.subscriptions:
                    await subscription.close(keep=not subscription.feed.closed)
                for updates in self._updates.values():
                    updates.feed.end(None)
                self._pool.close()

    def touched(self, touched: Touched) -> None:
        """Takes note that something was committed and can be read now. Does not block."""
        if self._by_id or self._updates:
            self._changed_keys.add(touched)
            self._woken.set()

    async def open(self, statement: Statement, *, existing: bool = False) -> Subscription:
        """The live query of this text. Raises `BadRequest` for what cannot be live,
        or when it had to be there; `Unavailable` when there are too many."""
        async with self._opening:
            plan = await in_thread(Pool.QUERIES, self._plan, statement)
            known = self._by_sql.get(plan.sql)
            if known is not None and not known.feed.closed:
                known.feed.touch()
                return known
            if existing:
                raise BadRequest(NO_SUBSCRIPTION)
            if len(self._by_id) >= MOST:
                await self.sweep(IDLE_S)
            if len(self._by_id) >= MOST:
                raise Unavailable(f"{MOST} live queries are kept already: share one, or wait until others end")
            made = await self._made(self.new_id(), plan)
            self._add(made)
        # What was committed while the first answer was read, and before anybody waited for it.
        await made.look(None)
        return made

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._clock.token_bytes(16), version=4)

    def find(self, text: str) -> Subscription:
        try:
            found = self._by_id.get(uuid.UUID(text))
        except ValueError:
            found = None
        if found is None or found.feed.closed:
            raise NotFound(f"could not find subscription with id {text}")
        found.feed.touch()
        return found

    async def updates(self, name: str) -> TableUpdates:
        """The updates of the table of this name. Raises `BadRequest` when there is no such table."""
        known = self._updates.get(name.lower())
        if known is None or known.feed.closed:
            schema = await in_thread(Pool.QUERIES, read_schema, self._file)
            table = schema.table(name)
            if table is None:
                raise BadRequest(f"table `{name}` not found in schema")
            known = self._updates[name.lower()] = TableUpdates(table, self._pool, self._clock)
        known.feed.touch()
        return known

    async def sweep(self, idle_s: float = IDLE_S) -> None:
        """Drop what nobody has listened to for so long, and what has ended."""
        now = self._clock.monotonic()
        for name, updates in list(self._updates.items()):
            if updates.feed.closed or updates.feed.idle_for(now) > SWEEP_S:
                del self._updates[name]
        for subscription in self.subscriptions:
            if subscription.feed.closed or subscription.feed.idle_for(now) >= idle_s:
                self._forget(subscription)
                await subscription.close(keep=False)

    def _plan(self, statement: Statement) -> QueryPlan:
        with self._pool.one() as reader:
            return plan_of(reader, statement, read_schema(self._file))

    async def _made(self, number: uuid.UUID, plan: QueryPlan) -> Subscription:
        return await in_thread(Pool.QUERIES, self._make, number, plan)

    def _make(self, number: uuid.UUID, plan: QueryPlan) -> Subscription:
        file = self._place / f"{number}.db"
        cache = ResultCache(file, plan.sources)
        try:
            cache.note(plan.about, completed=False)
            evaluation = Evaluation(plan, cache, self._pool, self._clock)
            evaluation.first()
        except BaseException:
            cache.close()
            remove(file)
            raise
        return Subscription(number, evaluation, self._clock, self._ring_events)

    def _add(self, subscription: Subscription) -> None:
        self._by_id[subscription.id] = subscription
        self._by_sql[subscription.plan.sql] = subscription

    def _forget(self, subscription: Subscription) -> None:
        self._by_id.pop(subscription.id, None)
        if self._by_sql.get(subscription.plan.sql) is subscription:
            del self._by_sql[subscription.plan.sql]

    async def _restore(self) -> None:
        for file in sorted(self._place.glob("*.db")):
            restored = await in_thread(Pool.QUERIES, self._restored, file)
            if restored is None:
                remove(file)
                continue
            self._add(restored)
            await restored.look(None)

    def _restored(self, file: Path) -> Subscription | None:
        """What a file holds, if it was closed well and its query can still be asked in the same way."""
        about = completed_query(file)
        try:
            number = uuid.UUID(file.stem)
            plan = self._plan(Statement(query=about.sql)) if about else None
        except (ValueError, BadRequest, Fault) as error:
            _log.info("live query not restored", extra={"file": file.name, "reason": str(error)})
            return None
        if about is None or plan is None or plan.about != about:
            return None
        try:
            cache = ResultCache(file, plan.sources)
            cache.note(about, completed=False)
        except apsw.Error as error:
            _log.warning("live query not restored", extra={"file": file.name, "reason": str(error)})
            return None
        evaluation = Evaluation(plan, cache, self._pool, self._clock)
        return Subscription(number, evaluation, self._clock, self._ring_events)

    async def _follow(self) -> None:
        """A moment after the first change, so that one look serves many."""
        while True:
            await self._woken.wait()
            if self._changed_keys.count < FLUSH_KEYS:
                await self._clock.sleep(FLUSH_S)
            self._woken = anyio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Look at all that is pending now."""
        batch = self._changed_keys.take()
        if batch.empty:
            return
        async with anyio.create_task_group() as group:
            for subscription in self.subscriptions:
                if batch.everything or subscription.plan.concerns(batch.tables):
                    group.start_soon(self._look, subscription, batch)
            for name, updates in list(self._updates.items()):
                if batch.everything or name in batch.tables:
                    group.start_soon(self._notify, updates, batch)

    async def _look(self, subscription: Subscription, batch: ChangedKeys) -> None:
        if subscription.plan.tree is None:
            self._look_soon(subscription)
            return
        try:
            await subscription.look(None if batch.everything else batch.tables)
        except Unavailable:
            self._look_soon(subscription)

    def _look_soon(self, subscription: Subscription) -> None:
        """At the whole answer, once, after a pause that grows with what a look costs."""
        if subscription.awaited or self._tasks is None:
            return
        subscription.awaited = True
        self._tasks.start_soon(self._look_later, subscription)

    async def _look_later(self, subscription: Subscription) -> None:
        pause = min(max(subscription.cost_s * _PAUSE_BY_COST, _LEAST_PAUSE_S), _MOST_PAUSE_S)
        await self._clock.sleep(pause)
        subscription.awaited = False
        try:
            await subscription.look(None)
        except Unavailable:
            self._look_soon(subscription)

    async def _notify(self, updates: TableUpdates, batch: ChangedKeys) -> None:
        if batch.everything:
            updates.overflow()
            return
        keys = batch.tables[updates.table.name.lower()]
        try:
            updates.feed.tell(await in_thread(Pool.QUERIES, updates.look, keys))
        except (BadRequest, DeadlineExceeded, Fault, Unavailable, apsw.Error):
            updates.overflow()

    async def _sweep_often(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            await self.sweep()
