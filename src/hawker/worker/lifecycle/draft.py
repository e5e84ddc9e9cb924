"""The drafts of a unit's files at the destination of a move: filled from the source's files, compared with them block
by block, and kept up with what a machine writes there meanwhile.

Invariant: a draft is whole only when every block was compared after nobody wrote to the source's file any more, or was
compared before and has not changed since, as the source's own record of changes says. A source that has no such record
has every block compared at the end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import anyio
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.contract.move import MoveParams
from hawker.api.contract.move_peer import (
    CHANGED_BLOCKS,
    DIGEST_BLOCKS,
    HAND_BLOCKS,
    HAND_VOLUME,
    SHOW_OUTGOING,
    ChangedBlocksQuery,
    MovedBlocksRequest,
    MovedPieceQuery,
    OutgoingMove,
)
from hawker.errors import HawkerError, NotFound, Unavailable
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, spans_of
from hawker.ids import NodeId, is_snapshot_id
from hawker.record.move import INCOMING, IncomingRecord, IncomingState, MoveState
from hawker.record.volume import GB
from hawker.store.contract import Durability, Tx
from hawker.volume.moved_blocks import (
    DIGEST_BYTES,
    HANDED_BLOCKS,
    Digests,
    blocks_in,
    differing,
    from_block,
    groups,
    union,
)
from hawker.volume.moved_files import BlockChanges, MovedFile, StoredPiece, draft_of
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.unit import files_of, unit_files

BESIDE_MIB_PER_S = 100
"""The speed in MiB/s of a copy beside a machine that runs, unless the order says."""

FEW_BLOCKS = 256
"""The most blocks that are copied while the machine is off, rather than in one more round."""

ROUNDS = 8
"""The rounds after which a machine that writes faster than it is copied is stopped."""

_COMPARED = 3  # times, before a difference is believed
_COMPARED_FASTER = 4  # than it is copied: it is read, and does not travel
_LOOK_S = 0.05
_LOOK_PAUSED_S = 0.5
_ORDERS_S = 1.0  # how often the source is asked for another limit, or a pause
_PATIENT_S = 20.0
_SYNCED_BYTES = 64 << 20
"""The most bytes that are copied anew after a crash."""

_SPANS_ASKED = 1024
_UNLIKE = 1 << 18  # blocks that are remembered by name; with more, all that were compared are taken for unlike
_NUMBER, _UPTO = 4, 8

T = TypeVar("T")
Upto: TypeAlias = tuple[MovedFile, int]
"""A file, and up to which offset its draft is filled and on disk."""


def change_incoming(tx: Tx, move_id: str, **fields: Any) -> IncomingRecord:
    """Changes fields of an incoming move and returns the new record. Raises `NotFound`."""
    record = tx.get(INCOMING, move_id)
    if record is None:
        raise NotFound(f"move {move_id} is not known here")
    changed = msgspec.structs.replace(record, **fields)
    tx.put(INCOMING, move_id, changed)
    return changed


async def ask_source(deps: FlowDeps, record: IncomingRecord) -> OutgoingMove | HawkerError:
    """The source's answer about the move, or why it says nothing."""
    params = MoveParams(move_id=record.move)
    try:
        return await deps.others.there.caller(record.source).call(SHOW_OUTGOING, params=params)
    except HawkerError as error:
        return error


def over(said: OutgoingMove | HawkerError, record: IncomingRecord, me: NodeId) -> str:
    """Why nothing of it comes to this node any more, as far as the source says so; a source that is silent says
    nothing."""
    if isinstance(said, NotFound):
        return f"node {record.source} knows of no such move"
    if isinstance(said, HawkerError):
        return ""
    if said.generation != record.generation or said.state in (MoveState.RECLAIMING, MoveState.ABORTED):
        return f"the move is {said.state} at node {record.source}"
    if said.to not in ("", me):
        return f"node {record.source} has chosen node {said.to} for it"
    return ""


class UnitDrafts:
    """The drafts of the files of one move, in one life of the daemon: what it knows of the source's changes it knows
    itself."""

    def __init__(self, deps: FlowDeps, record: IncomingRecord) -> None:
        self._deps = deps
        self._record = record
        self._pace = CopyPace(deps, record)
        self._drafts = [FileDraft(deps, record, each, self._pace) for each in unit_files(record)]
        self._warm = False

    async def await_source(self) -> str:
        """Waits until the source's files may be read; returns why that will not be, if so."""
        while True:
            said = await ask_source(self._deps, self._record)
            ended = over(said, self._record, self._deps.others.there.me)
            if ended:
                return ended
            if isinstance(said, OutgoingMove) and said.hands_over:
                self._pace.beside = not said.closed
                return ""
            await self._deps.clock.sleep(_LOOK_S)

    async def begin(self) -> None:
        for draft in self._drafts:
            await draft.make()

    async def fill(self) -> str:
        """Copies until all files are whole; returns why that will not be, if so."""
        for draft in self._drafts:
            await draft.copy()
        if self._pace.beside:
            for draft in self._drafts:
                await draft.begin()
            ended = await self._keep_up()
            if ended:
                return ended
        self._pace.beside = False
        for draft in self._drafts:
            ended = await draft.finish()
            if ended:
                return ended
        return ""

    async def sync(self) -> None:
        for draft in self._drafts:
            await draft.sync()

    async def _keep_up(self) -> str:
        """Copy what changes until nobody writes any more; why nothing comes, if so."""
        rounds = 0
        while True:
            said = await ask_source(self._deps, self._record)
            ended = over(said, self._record, self._deps.others.there.me)
            if ended or (isinstance(said, OutgoingMove) and said.closed):
                return ended
            if isinstance(said, OutgoingMove) and said.paused:
                await self._deps.clock.sleep(_LOOK_PAUSED_S)
                continue
            behind = sum([await draft.catch_up() for draft in self._drafts])
            rounds += 1
            if rounds >= ROUNDS or behind <= FEW_BLOCKS:
                await self._say_warm()
            await self._deps.clock.sleep(_LOOK_S)

    async def _say_warm(self) -> None:
        def say(tx: Tx) -> None:
            record = tx.get(INCOMING, self._record.move)
            if record is not None and record.state is IncomingState.READY:
                change_incoming(tx, record.move, state=IncomingState.WARM)

        if not self._warm:
            await self._deps.store.write(say, Durability.ORDERED)
            self._warm = True


class CopyPace:
    """The progress of the copy of all files of a move, and how fast it may be; `beside` a machine that runs."""

    def __init__(self, deps: FlowDeps, record: IncomingRecord) -> None:
        self._deps = deps
        self._record = record
        self.beside = True
        self._copied = record.copied_bytes
        self._compared = record.compared_bytes
        self._free_at = deps.clock.monotonic()
        self._limit = record.limit_mib_per_s
        self._ask_at = self._free_at + _ORDERS_S

    async def note(self, copied: int = 0, compared: int = 0, upto: Upto | None = None) -> None:
        """Notes so many bytes more, and waits so that it is no faster than it may be; what lies before `upto` is on
        disk."""
        self._copied, self._compared = self._copied + copied, self._compared + compared
        store, clock = self._deps.store, self._deps.clock

        def note(tx: Tx) -> None:
            noted = change_incoming(tx, self._record.move, copied_bytes=self._copied, compared_bytes=self._compared)
            if upto is not None:
                change_incoming(tx, noted.move, **_on_disk(noted, *upto))

        await store.write(note, Durability.ORDERED)
        await self._obey()
        limit = self._limit or (BESIDE_MIB_PER_S if self.beside else 0)
        if limit:
            cost_s = (copied + compared / _COMPARED_FASTER) / (limit << 20)
            self._free_at = max(self._free_at, clock.monotonic() - 1.0) + cost_s
            await clock.sleep(max(0.0, self._free_at - clock.monotonic()))

    async def _obey(self) -> None:
        """The limit that the source says by now, and its pause. A source that is silent says neither."""
        clock = self._deps.clock
        if clock.monotonic() < self._ask_at:
            return
        said = await ask_source(self._deps, self._record)
        while isinstance(said, OutgoingMove) and said.paused:
            await clock.sleep(_LOOK_PAUSED_S)
            said = await ask_source(self._deps, self._record)
        if isinstance(said, OutgoingMove) and said.limit_mib_per_s is not None:
            self._limit = said.limit_mib_per_s
        self._ask_at = clock.monotonic() + _ORDERS_S


class DraftPace(Protocol):
    async def note(self, copied: int = 0, compared: int = 0, upto: Upto | None = None) -> None:
        """Notes so many bytes more, and waits so that it is no faster than it may be; what lies before `upto` is on
        disk."""


class FileDraft:
    """The draft of one file of a move; `begun` is its size and how far it is on disk, where the move does not say."""

    def __init__(
        self,
        deps: FlowDeps,
        record: IncomingRecord,
        file: MovedFile,
        pace: DraftPace,
        begun: tuple[int, int] | None = None,
    ) -> None:
        self._deps = deps
        self._record = record
        self._pace = pace
        self._file = file
        self._draft = draft_of(record.move, file)
        self._root = bool(file.layer) or None
        self._memory = file.memory or None
        self._snapshot = file.id if is_snapshot_id(file.id) else None
        self._size, self._upto = begun or _begun(record, file)
        self._all = (BlockRange(0, blocks_in(self._size)),)
        self._begun = self._last = ""  # marks of the source: since when it was compared, up to when it was copied
        self._again: tuple[BlockRange, ...] = ()  # what was not the same then, and was copied once more

    async def make(self) -> None:
        """Makes the draft's file, with what was on disk before a crash."""
        await files_of(self._deps).begin(self._draft, self._size, self._upto)

    async def sync(self) -> None:
        await files_of(self._deps).sync(self._draft)

    async def begin(self) -> None:
        """Begins to copy beside a machine that runs: from now on the source's record of changes says what has to be
        compared again."""
        self._begun = self._last = (await self._changed("")).mark
        self._again = await self._equalize(self._all)

    async def catch_up(self) -> int:
        """Copy what changed since the last time; how many blocks that were. A source whose daemon is another one does
        not know, so all is compared again."""
        found = await self._changed(self._last)
        if found.spans is None and found.mark:
            await self.begin()
            return self._all[0].count
        self._last, spans = found.mark, found.spans or ()
        await self._take(spans)
        return sum(each.count for each in spans)

    async def finish(self) -> str:
        """Copies, when nobody writes any more, until the file is as the source's; returns why that will not be, if
        so."""
        behind, doubtful = (await self._changed(self._last)).spans, (await self._changed(self._begun)).spans
        await self._take(behind or ())
        return await self._compare(self._all if doubtful is None else union(doubtful, self._again))

    async def compare(self) -> str:
        """Compares the whole draft with a file that nobody writes to any more; returns why the copy is not the same, if
        so."""
        return await self._compare(self._all)

    async def _compare(self, spans: Sequence[BlockRange]) -> str:
        """What was not the same is copied once more, and compared once more."""
        for _ in range(_COMPARED):
            spans = await self._equalize(spans)
            if not spans:
                return ""
        return (
            f"the copy is not what is at node {self._record.source}: {spans[0].count} blocks from {spans[0].first} on"
        )

    async def copy(self) -> None:
        """Copies what the source's file stores, in order; one piece is fetched while the one before it is written."""
        files = files_of(self._deps)
        unsynced = 0
        piece = await self._piece(self._upto)
        while piece is not None:
            offset = piece.offset + len(piece.data)
            following = list[StoredPiece | None]()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._piece_into, offset, following)
                tasks.start_soon(files.write, self._draft, piece)
            unsynced += len(piece.data)
            if unsynced >= _SYNCED_BYTES:
                await files.sync(self._draft)
                await self._pace.note(len(piece.data), upto=(self._file, offset))
                unsynced = 0
            else:
                await self._pace.note(len(piece.data))
            piece = following[0]

    async def _piece_into(self, offset: int, into: list[StoredPiece | None]) -> None:
        into.append(await self._piece(offset))

    async def _equalize(self, spans: Sequence[BlockRange]) -> tuple[BlockRange, ...]:
        """Compare these blocks, and copy those that differ; which did."""
        unlike, many = set[int](), False
        begin = spans[0].first if spans else 0
        while rest := from_block(spans, begin):
            asked = rest[:_SPANS_ASKED]
            both = dict[str, Digests]()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._digests_into, asked, both)
                tasks.start_soon(self._own_digests_into, asked, both)
            upto, found = differing(asked, both["ours"], both["theirs"])
            if upto <= begin:
                raise Unavailable(f"node {self._record.source} compares nothing from block {begin} on")
            unlike |= found
            await self._take(spans_of(found))
            await self._pace.note(compared=len(both["ours"].of) * BLOCK_BYTES)
            begin = upto
            if len(unlike) > _UNLIKE:
                unlike, many = set(), True
        return tuple(spans) if many else spans_of(unlike)

    async def _digests_into(self, spans: Sequence[BlockRange], into: dict[str, Digests]) -> None:
        into["theirs"] = await self._digests(spans)

    async def _own_digests_into(self, spans: Sequence[BlockRange], into: dict[str, Digests]) -> None:
        into["ours"] = await files_of(self._deps).digests_of_draft(self._draft, spans)

    async def _take(self, spans: Sequence[BlockRange]) -> None:
        """Copy these blocks, whatever is in them."""
        for group in groups(spans, HANDED_BLOCKS):
            blocks = await self._blocks(group)
            await files_of(self._deps).overwrite(self._draft, group, blocks)
            await self._pace.note(sum(map(len, blocks.values())))

    # What the source is asked. A source that is away for a moment is asked again.

    async def _piece(self, offset: int) -> StoredPiece | None:
        """The next stored bytes of its file. Raises `Unavailable` for an answer that cannot be."""
        generation = self._record.generation
        query = MovedPieceQuery(
            generation=generation,
            root=self._root,
            snapshot=self._snapshot,
            memory=self._memory,
            offset=offset,
            count=PIECE_BYTES,
        )
        params = MoveParams(move_id=self._record.move)
        said = await self._patiently(lambda: self._source.call(HAND_VOLUME, params=params, query=query))
        if not said:
            return None
        at, data = int.from_bytes(said[:_UPTO], "big"), said[_UPTO:]
        if at < offset or not data or at + len(data) > self._size:
            raise Unavailable(f"node {self._record.source} handed over {len(data)} bytes at {at}, which cannot be")
        return StoredPiece(at, data)

    async def _changed(self, since: str) -> BlockChanges:
        query = ChangedBlocksQuery(
            generation=self._record.generation, root=self._root, memory=self._memory, since=since
        )
        params = MoveParams(move_id=self._record.move)
        said = await self._patiently(lambda: self._source.call(CHANGED_BLOCKS, params=params, query=query))
        spans = tuple(BlockRange(*each) for each in said.spans)
        self._check(spans)
        return BlockChanges(said.mark, spans if said.known else None)

    async def _digests(self, spans: Sequence[BlockRange]) -> Digests:
        params, body = MoveParams(move_id=self._record.move), self._request(spans)
        said = await self._patiently(lambda: self._source.call(DIGEST_BLOCKS, params=params, body=body))
        size, entries = _NUMBER + DIGEST_BYTES, said[_UPTO:]
        if len(said) < _UPTO or len(entries) % size:
            raise Unavailable(f"node {self._record.source} answered {len(said)} bytes of digests, which cannot be")
        found = {
            int.from_bytes(entries[at : at + _NUMBER], "big"): entries[at + _NUMBER : at + size]
            for at in range(0, len(entries), size)
        }
        self._check_among(found, spans)
        return Digests(int.from_bytes(said[:_UPTO], "big"), found)

    async def _blocks(self, spans: Sequence[BlockRange]) -> Mapping[int, bytes]:
        params, body = MoveParams(move_id=self._record.move), self._request(spans)
        said = await self._patiently(lambda: self._source.call(HAND_BLOCKS, params=params, body=body))
        found, at = dict[int, bytes](), 0
        while at < len(said):
            block = int.from_bytes(said[at : at + _NUMBER], "big")
            length = min(BLOCK_BYTES, self._size - block * BLOCK_BYTES)
            at += _NUMBER + length
            if length <= 0 or at > len(said):
                raise Unavailable(f"node {self._record.source} handed over block {block}, which cannot be")
            found[block] = said[at - length : at]
        self._check_among(found, spans)
        return found

    @property
    def _source(self) -> Caller:
        return self._deps.others.there.caller(self._record.source)

    def _request(self, spans: Sequence[BlockRange]) -> MovedBlocksRequest:
        asked = tuple((each.first, each.count) for each in spans)
        return MovedBlocksRequest(
            generation=self._record.generation,
            root=self._root,
            snapshot=self._snapshot,
            memory=self._memory,
            spans=asked,
        )

    def _check(self, spans: Sequence[BlockRange]) -> None:
        if any(each.first < 0 or each.count < 1 or each.end > self._all[0].end for each in spans):
            raise Unavailable(f"node {self._record.source} says that blocks changed which it does not have")

    def _check_among(self, found: Mapping[int, bytes], spans: Sequence[BlockRange]) -> None:
        asked = iter(spans)
        span = next(asked, None)
        for block in sorted(found):
            while span is not None and block >= span.end:
                span = next(asked, None)
            if span is None or block < span.first:
                raise Unavailable(f"node {self._record.source} answered block {block}, which was not asked for")

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Raises what the last try raised."""
        clock = self._deps.clock
        until = clock.monotonic() + _PATIENT_S
        while True:
            try:
                return await ask()
            except HawkerError as error:
                if not error.retry or clock.monotonic() > until:
                    raise
            await clock.sleep(_LOOK_S)


def _on_disk(record: IncomingRecord, file: MovedFile, offset: int) -> dict[str, Any]:
    """The fields of the record that say so, for `_begun`."""
    if file.memory:
        return {"memory_upto": {**record.memory_upto, file.memory: offset}}
    return {"root_upto" if file.layer else "upto": offset}


def _begun(record: IncomingRecord, file: MovedFile) -> tuple[int, int]:
    """How large the draft is to be, and how far it is on disk."""
    if file.memory:
        assert record.memory is not None, "it is a file of the unit's memory"
        size_bytes = next(each.size_bytes for each in record.memory.files if each.name == file.memory)
        return size_bytes, record.memory_upto.get(file.memory, 0)
    if file.layer:
        assert record.root is not None, "a layer goes along as the unit's root"
        return record.root.size_bytes, record.root_upto
    assert record.volume is not None, "it is that of the unit's volume"
    return record.volume.made_gb * GB, record.upto
