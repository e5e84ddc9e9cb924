"""Tells the catalog what this node is and has. All of it is compared once at the beginning, then what changed is told,
in batches: machines at once, what changes all the time (room, health) a few times a second at most. A worker's rows
come from a source for each bucket of its store that the fleet hears of, and for what is in no store: room, images.

The store is the truth: whatever goes wrong here is told again later, and nothing waits for it, also not the rows beside
one that cannot be made or that the catalog does not take.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from hawker.api.call_metadata import UNTOLD
from hawker.catalog.capture import size_of
from hawker.catalog.change import Token
from hawker.catalog.contract import Catalog, Statement
from hawker.clock import Clock
from hawker.errors import BadRequest, HawkerError, TooLarge, Unprocessable
from hawker.fleet.pages import pages
from hawker.fleet.rows import (
    KEYS,
    NodeFacts,
    Row,
    RowKey,
    address_rows,
    app_ip_rows,
    app_row,
    capacity_row,
    health_rows,
    image_name_row,
    image_row,
    machine_row,
    node_row,
    own_rows,
    peer_row,
    removal,
    row_of,
    served_rows,
    service_rows,
    takeover_row,
    upsert,
    volume_row,
)
from hawker.ids import MachineId, NodeId
from hawker.log import bind
from hawker.node import Capacity
from hawker.record.app import APPS, IPS, WIREGUARD_PEERS
from hawker.record.machine import MACHINES, CheckResult, MachineRecord, taken
from hawker.record.node import NODE, TAKEOVERS, USED, used
from hawker.record.volume import VOLUMES
from hawker.store.contract import Observable, Reader, keys_of
from hawker.value_object import ValueObject

GATHER_S = 0.005
CALM_S = 0.5
LOOK_EVERY_S = 10.0
AGAIN_S = 1.0
WRITTEN_S = 0.5
COMPARE_EVERY_S = 15.0
QUERY_S = 60.0
ROWS_AT_ONCE, BYTES_AT_ONCE = 500, 4 * 1024 * 1024
_REFUSALS = (BadRequest, TooLarge, Unprocessable)

_log = bind("hawker.publish")


class Source(ValueObject, frozen=True, kw_only=True):
    """A source of rows for the catalog: `every` has the keys of all that there is now, also of what cannot be read;
    `rows` are those of one key as they are now, none when it is gone. A `calm` source may wait a little; a source that
    is `looked_at` tells nobody of its changes."""

    name: str
    """Unique among sources: that of the bucket whose records its rows are made of, or a word of its own."""
    every: Callable[[], Iterable[str]]
    rows: Callable[[str], Iterable[Row]]
    calm: bool = False
    looked_at: bool = False
    tables: frozenset[str] = frozenset(KEYS)
    """The tables that its rows can be in; a source that may long be unable to make a row names them."""


class PublishedRows:
    """The rows that the catalog was told. Pure."""

    def __init__(self) -> None:
        self._told: dict[RowKey, bytes] = {}
        self._of: dict[tuple[str, str], frozenset[RowKey]] = {}

    def begin(self) -> None:
        """Nothing is known of what is in the catalog."""
        self._told, self._of = {}, {}

    def learn(self, found: Iterable[Row]) -> None:
        """This is in the catalog, too; whose it is will be seen."""
        self._told.update((row.at, row.digest) for row in found)

    def changes(self, source: str, key: str, rows: Iterable[Row]) -> "RowChanges":
        """The changes to tell so that the catalog has exactly `rows` of this key."""
        wanted = {row.at: row for row in rows}
        gone = self._of.get((source, key), frozenset()) - wanted.keys()
        new = tuple(row for at, row in wanted.items() if self._told.get(at) != row.digest)
        return RowChanges(source=source, key=key, new=new, gone=tuple(sorted(gone, key=repr)), rows=frozenset(wanted))

    def strays(self, tables: Collection[str]) -> tuple[RowKey, ...]:
        """The rows that the catalog has in these tables and no source does, once the sources have said all of theirs
        there."""
        owned = {at for rows in self._of.values() for at in rows}
        return tuple(at for at in self._told if at.table in tables and at not in owned)

    def told(self, changes: "RowChanges") -> None:
        for row in changes.new:
            self._told[row.at] = row.digest
        for at in changes.gone:
            self._told.pop(at, None)
        if changes.rows:
            self._of[changes.source, changes.key] = changes.rows
        else:
            self._of.pop((changes.source, changes.key), None)

    def dropped(self, strays: Iterable[RowKey]) -> None:
        for at in strays:
            self._told.pop(at, None)


class RowChanges(ValueObject, frozen=True, kw_only=True):
    """The changes of one key of a source; `rows` is all that it then has."""

    source: str
    """The name of the source."""
    key: str
    """The key, one of those that the source's `every` gives."""
    new: tuple[Row, ...]
    gone: tuple[RowKey, ...]
    rows: frozenset[RowKey]

    @property
    def statements(self) -> list[Statement]:
        return [*map(removal, self.gone), *map(upsert, self.new)]

    @property
    def size_bytes(self) -> int:
        return sum(size_of(row.at.key) + size_of(row.values) for row in self.new)

    def without(self, refused: Collection[RowKey]) -> "RowChanges":
        """The same changes, for a catalog that shall have nothing in the place of what it refused."""
        new = tuple(row for row in self.new if row.at not in refused)
        return replace(self, new=new, gone=(*self.gone, *refused), rows=self.rows.difference(refused))


class Publisher:
    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        node: NodeId,
        sources: Sequence[Source],
        *,
        compare_every_s: float | None = None,
    ) -> None:
        """`compare_every_s` is for a catalog in which others can write this node's rows, or that can lose them: an
        agent's. Otherwise all of it is compared once."""
        self._catalog = catalog
        self._clock = clock
        self._node = node
        self._sources = {source.name: source for source in sources}
        self._ledger = PublishedRows()
        self._noted: dict[tuple[str, str], None] = {}
        self._calm: dict[tuple[str, str], None] = {}
        self._wake, self._progress = anyio.Event(), anyio.Event()
        self._asked, self._done = 0, 0
        self._calm_at = self._look_at = clock.monotonic()
        self._compare_every_s, self._compare_at = compare_every_s, float("inf")
        self._sound = False  # the catalog takes what it is told
        self._refused = ""  # why it does not
        self._aside: dict[tuple[str, str], str] = {}  # what it is not told for now, and why
        self._unsaid: set[tuple[str, str]] = set()  # what of that the source cannot say
        self._unswept: frozenset[str] = frozenset()  # tables that may have rows which no source has
        self.token: Token | None = None

    def note(self, source: str, key: str) -> None:
        """Notes that something of a source's key changed. Called in the event loop; does not block."""
        if source not in self._sources:
            return
        if self._sources[source].calm:
            self._calm[source, key] = None
        else:
            self._noted[source, key] = None
            self._asked += 1
        self._wake.set()

    @property
    def troubles(self) -> Sequence[str]:
        """The troubles of publishing, as sentences for people; empty when all is well."""
        found = [f"the catalog does not take what this node tells it: {self._refused}"] if self._refused else []
        for (source, key), why in list(self._aside.items())[:1]:
            found.append(f"{len(self._aside)} of this node's records are not in the catalog, {source}/{key}: {why}")
        return found

    async def settled(self, *, timeout_s: float) -> Token | None:
        """The place in the catalog's stream once it has all that was noted so far; None when that takes longer than
        `timeout_s` seconds, or nothing was ever told."""
        asked = self._asked
        with anyio.move_on_after(timeout_s):
            while not self._sound or self._done < asked:
                await self._progress.wait()
            return self.token
        return None

    async def written(self) -> str:
        """The place in the catalog at which all that was written here until now can be read; one that is not known when
        the catalog does not have it soon."""
        token = await self.settled(timeout_s=WRITTEN_S) if self._sound else None
        return str(token) if token is not None else f"{self._node}:{UNTOLD}"

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Compares the catalog with the sources and then follows their changes, until cancelled. Nobody waits for the
        first comparison."""
        task_status.started()
        while True:
            try:
                await self._compare()
                await self._follow()
            except HawkerError as error:
                self._sound, self._refused = False, str(error)
                _log.warning("cannot tell the catalog", extra={"error": str(error)})
                await self._clock.sleep(AGAIN_S)

    async def _compare(self) -> None:
        """All that the catalog has of this node with all that there is."""
        asked = self._asked
        if self._compare_every_s is not None:
            self._compare_at = self._clock.monotonic() + self._compare_every_s
        self._noted, self._calm = {}, {}
        self._ledger.begin()
        self._unswept = frozenset(KEYS)
        for table in KEYS:
            async for page in pages(self._catalog, own_rows(table), self._node, timeout_s=QUERY_S):
                self._ledger.learn(row_of(table, values) for values in page)
        seen: set[tuple[str, str]] = set()
        for source in self._sources.values():
            places = [(source.name, key) for key in source.every()]
            seen.update(places)
            await self._tell(places)
        self._aside = {at: why for at, why in self._aside.items() if at in seen}
        self._unsaid &= seen
        await self._remove_strays()
        self._sound, self._refused = True, ""
        self._reached(asked)

    async def _remove_strays(self) -> None:
        """From no table of which a source could not say all its rows: whose a row is does not show in its key."""
        unsure = {table for name, _ in self._unsaid for table in self._sources[name].tables}
        due = self._unswept - unsure
        if not due:
            return
        strays = self._ledger.strays(due)
        for start in range(0, len(strays), ROWS_AT_ONCE):
            some = strays[start : start + ROWS_AT_ONCE]
            await self._transact([removal(at) for at in some])
            self._ledger.dropped(some)
        self._unswept -= due

    async def _follow(self) -> None:
        """Until all is to be compared again."""
        while self._clock.monotonic() < self._compare_at:
            await self._until_due()
            asked, noted = self._asked, self._noted
            self._noted = {}
            due = list(noted)
            if self._clock.monotonic() >= self._calm_at:
                due += self._calm
                self._calm = {}
                self._calm_at = self._clock.monotonic() + CALM_S
            await self._tell(due)
            await self._remove_strays()
            self._reached(asked)

    async def _until_due(self) -> None:
        """Something was noted and a moment has passed in which more of it may come, or it is time to look, at the
        sources or at the catalog."""
        while not self._noted and not (self._calm and self._clock.monotonic() >= self._calm_at):
            if self._clock.monotonic() >= self._compare_at:
                return
            self._wake = anyio.Event()
            next_look = min(self._calm_at if self._calm else self._look_at, self._compare_at)
            with anyio.move_on_after(max(0.0, next_look - self._clock.monotonic())):
                await self._wake.wait()
            if self._clock.monotonic() >= self._look_at:
                self._look()
        await self._clock.sleep(GATHER_S)

    def _look(self) -> None:
        """Notes what tells nobody of its changes, and what could not be said: that a record can be read again is no
        change."""
        self._look_at = self._clock.monotonic() + LOOK_EVERY_S
        self._calm.update(dict.fromkeys(self._unsaid))
        for source in self._sources.values():
            if source.looked_at:
                self._calm.update({(source.name, key): None for key in source.every()})

    async def _tell(self, places: Sequence[tuple[str, str]]) -> None:
        """In transactions of a bounded length and size; a key's changes are in one of them, unless it is refused."""
        batch: list[RowChanges] = []
        rows = size_bytes = 0
        for at in places:
            changes = self._changes(at)
            if changes is None:
                continue
            size = changes.size_bytes
            if batch and size_bytes + size > BYTES_AT_ONCE:
                await self._commit(batch)
                batch, rows, size_bytes = [], 0, 0
            batch.append(changes)
            rows, size_bytes = rows + len(changes.new) + len(changes.gone), size_bytes + size
            if rows >= ROWS_AT_ONCE:
                await self._commit(batch)
                batch, rows, size_bytes = [], 0, 0
        await self._commit(batch)

    def _changes(self, at: tuple[str, str]) -> RowChanges | None:
        """None for a key of which the source cannot say what there is: the catalog keeps what it has."""
        name, key = at
        try:
            changes = self._ledger.changes(name, key, self._sources[name].rows(key))
        except HawkerError as error:
            self._unsaid.add(at)
            self._set_aside(at, error)
            return None
        self._unsaid.discard(at)
        return changes

    async def _commit(self, batch: Sequence[RowChanges]) -> None:
        """What the catalog refuses is looked for, by halves, and what is beside it is told."""
        try:
            await self._transact([statement for changes in batch for statement in changes.statements])
        except _REFUSALS:
            if len(batch) == 1:
                await self._tell_singly(batch[0])
                return
            half = len(batch) // 2
            await self._commit(batch[:half])
            await self._commit(batch[half:])
            return
        for changes in batch:
            self._ledger.told(changes)
            self._aside.pop((changes.source, changes.key), None)

    async def _tell_singly(self, changes: RowChanges) -> None:
        """The rows of a key without those that the catalog refuses; what it had in their place goes. A catalog that
        refuses that, too, is what is wrong."""
        refused: list[RowKey] = []
        for row in changes.new:
            try:
                await self._transact([upsert(row)])
            except _REFUSALS as error:
                refused.append(row.at)
                self._set_aside((changes.source, changes.key), error)
        told = changes.without(refused)
        await self._transact([removal(at) for at in told.gone])
        self._ledger.told(told)

    def _set_aside(self, at: tuple[str, str], error: HawkerError) -> None:
        if self._aside.get(at) != str(error):
            source, key = at
            _log.warning("cannot tell of a record", extra={"source": source, "key": key, "error": str(error)})
        self._aside[at] = str(error)

    async def _transact(self, statements: list[Statement]) -> None:
        if statements:
            self.token = await self._catalog.transact(statements) or self.token

    def _reached(self, asked: int) -> None:
        self._done = max(self._done, asked)
        progress, self._progress = self._progress, anyio.Event()
        progress.set()


HEALTH, IMAGES, IMAGE_NAMES = "health", "images", "image_names"
ALL = "all"


class PublishedState(ValueObject, frozen=True, kw_only=True):
    """The state of a worker that others are told of. `health_of` are the results of a machine's checks, `room` is what
    the host has to sell, `images` are the digests of the images that are here, `image_names` are the names of uploads,
    each with its digest and when it was given."""

    node: NodeId
    store: Reader
    health_of: Callable[[MachineRecord], Iterable[CheckResult]]
    room: Callable[[], Capacity]
    images: Callable[[], Iterable[str]]
    image_names: Callable[[], Iterable[tuple[str, str, float]]] = tuple


def worker_sources(published: PublishedState, said: NodeFacts) -> tuple[Source, ...]:
    rows = _Rows(published, said)
    keys = partial(keys_of, published.store)
    return (
        Source(name=NODE.name, every=partial(keys, NODE), rows=rows.node),
        Source(name=APPS.name, every=partial(keys, APPS), rows=rows.app),
        Source(name=IPS.name, every=partial(keys, IPS), rows=rows.app_ip),
        Source(name=WIREGUARD_PEERS.name, every=partial(keys, WIREGUARD_PEERS), rows=rows.peer),
        Source(name=MACHINES.name, every=partial(keys, MACHINES), rows=rows.machine),
        Source(name=TAKEOVERS.name, every=partial(keys, TAKEOVERS), rows=rows.takeover),
        Source(name=VOLUMES.name, every=partial(keys, VOLUMES), rows=rows.volume),
        Source(name=USED.name, every=_one, rows=rows.capacity, calm=True, looked_at=True),
        Source(name=HEALTH, every=partial(keys, MACHINES), rows=rows.health, calm=True),
        Source(name=IMAGES, every=_one, rows=rows.images, calm=True, looked_at=True),
        Source(name=IMAGE_NAMES, every=_one, rows=rows.image_names),
    )


def follow(publisher: Publisher, store: Observable, hear: Callable[[Callable[[MachineId], None]], None]) -> None:
    """Have the publisher told of every change in the store, and of machines whose health changed, by `hear`."""
    store.listen(publisher.note)
    hear(partial(publisher.note, HEALTH))


def _one() -> tuple[str, ...]:
    return (ALL,)


class _Rows:
    def __init__(self, published: PublishedState, said: NodeFacts) -> None:
        self._published = published
        self._said = said
        self._store = published.store
        self._node = published.node

    def node(self, key: str) -> Iterable[Row]:
        record = self._store.get(NODE, key)
        return () if record is None else (node_row(record, self._said),)

    def app(self, key: str) -> Iterable[Row]:
        record = self._store.get(APPS, key)
        return () if record is None else (app_row(self._node, record),)

    def app_ip(self, key: str) -> Iterable[Row]:
        record = self._store.get(IPS, key)
        return () if record is None else app_ip_rows(self._node, key.partition("/")[0], record)

    def peer(self, key: str) -> Iterable[Row]:
        record = self._store.get(WIREGUARD_PEERS, key)
        return () if record is None else (peer_row(self._node, record),)

    def machine(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, key)
        if record is None:
            return ()
        machine, node = machine_row(self._node, record), self._node
        told = (*service_rows(node, record), *address_rows(node, record), *served_rows(node, record))
        return (machine, *told)

    def takeover(self, key: str) -> Iterable[Row]:
        record = self._store.get(TAKEOVERS, key)
        return () if record is None else (takeover_row(self._node, record),)

    def volume(self, key: str) -> Iterable[Row]:
        record = self._store.get(VOLUMES, key)
        return () if record is None else (volume_row(self._node, record),)

    def health(self, key: str) -> Iterable[Row]:
        record = self._store.get(MACHINES, MachineId(key))
        return () if record is None else health_rows(self._node, record, self._published.health_of(record))

    def capacity(self, key: str) -> Iterable[Row]:
        return (capacity_row(self._node, self._published.room(), used(self._store), taken(self._store)),)

    def images(self, key: str) -> Iterable[Row]:
        return (image_row(self._node, digest) for digest in dict.fromkeys(self._published.images()))

    def image_names(self, key: str) -> Iterable[Row]:
        return (image_name_row(self._node, *named) for named in self._published.image_names())
