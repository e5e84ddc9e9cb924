"""Snapshots from one node to another, over streams: a node that begins, or is far behind, takes all there is as one
compressed file instead of row by row. Reads and writes go on meanwhile, on both sides.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from hawker.catalog.change import Scope
from hawker.catalog.contract import Touched
from hawker.catalog.messages import (
    SnapshotAsk,
    SnapshotMeta,
    SnapshotPart,
    SnapshotRead,
    decode,
    encode,
)
from hawker.catalog.snapshot import Snapshot
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.ids import NodeId

M = TypeVar("M", SnapshotMeta, SnapshotPart)

CHUNK_BYTES = 4 << 20
MOST_BYTES = 4 << 30
KEPT_S = 120.0
MAKE_S = 120.0
READ_S = 60.0
FAR_BEHIND = 100_000
FRESH_BEHIND = 2_000


class Photographed(Protocol):
    """What a storage offers beside `contract.Storage`. Both block, in any thread, and hold up nothing for long."""

    def snapshot(self, target: Path, scopes: Collection[Scope]) -> Snapshot: ...

    def install(self, file: Path, digest: str) -> Touched: ...


class Album:
    """`place` is a folder for the files; what a run before left there is removed. A snapshot is worth its while with
    so many versions missing: `far`, or `fresh` for a node that begins."""

    def __init__(
        self,
        storage: Photographed,
        place: Path,
        clock: Clock,
        ask: Callable[[NodeId, bytes, float], Awaitable[bytes]],
        *,
        far: int = FAR_BEHIND,
        fresh: int = FRESH_BEHIND,
    ) -> None:
        self.far, self.fresh = far, fresh
        self._storage, self._place, self._clock, self._ask = storage, place, clock, ask
        self._kept: dict[int, tuple[Snapshot, float, frozenset[Scope]]] = {}
        self._number = 0
        self._making = anyio.Lock()
        for stale in place.glob("snapshot-*"):
            stale.unlink(missing_ok=True)

    async def answer(self, message: SnapshotAsk | SnapshotRead) -> bytes:
        """Raises `Unavailable` when none can be made, `NotFound` when it is not kept any more."""
        self._drop(self._clock.monotonic() - KEPT_S)
        if isinstance(message, SnapshotAsk):
            return encode(await self._meta(frozenset(message.scopes)))
        if message.number not in self._kept or message.offset < 0:
            raise NotFound("that snapshot of the catalog is not kept any more; ask for another")
        snapshot, _, scopes = self._kept[message.number]
        self._kept[message.number] = (snapshot, self._clock.monotonic(), scopes)
        data = await anyio.to_thread.run_sync(snapshot.read, message.offset, CHUNK_BYTES)
        return encode(SnapshotPart(data=data))

    async def take(self, whom: NodeId, scopes: Iterable[Scope]) -> Touched:
        """All that another has, into the storage. Raises `Unavailable`, `BadRequest` when it does not work."""
        meta = _expect(SnapshotMeta, await self._ask(whom, encode(SnapshotAsk(scopes=tuple(scopes))), MAKE_S))
        if not 0 < meta.size <= MOST_BYTES:
            raise BadRequest(f"a snapshot of {meta.size} bytes is not taken")
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number += 1
        file = self._place / f"snapshot-taken-{self._number}"
        try:
            await self._fetch(whom, meta, file)
            return await anyio.to_thread.run_sync(self._storage.install, file, meta.digest)
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        self._drop(float("inf"))

    async def _fetch(self, whom: NodeId, meta: SnapshotMeta, file: Path) -> None:
        offset = 0
        async with await anyio.open_file(file, "wb") as out:
            while offset < meta.size:
                read = SnapshotRead(number=meta.number, offset=offset)
                part = _expect(SnapshotPart, await self._ask(whom, encode(read), READ_S))
                if not part.data:
                    raise Unavailable("a snapshot ended before its end; another node is asked")
                await out.write(part.data[: meta.size - offset])
                offset += len(part.data)

    async def _meta(self, scopes: frozenset[Scope]) -> SnapshotMeta:
        async with self._making:
            for number, (snapshot, _, kept) in self._kept.items():
                if kept == scopes:
                    return SnapshotMeta(number=number, size=snapshot.size_bytes, digest=snapshot.digest)
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._number += 1
            number = self._number
            target = self._place / f"snapshot-{number}"
            snapshot = await anyio.to_thread.run_sync(partial(self._storage.snapshot, target, scopes))
            self._kept[number] = (snapshot, self._clock.monotonic(), scopes)
            return SnapshotMeta(number=number, size=snapshot.size_bytes, digest=snapshot.digest)

    def _drop(self, before: float) -> None:
        for number, (snapshot, used, _) in [*self._kept.items()]:
            if used < before:
                del self._kept[number]
                snapshot.close()


def _expect(kind: type[M], raw: bytes) -> M:
    try:
        message = decode(raw)
    except ValueError as error:
        raise Unavailable(f"an answer about a snapshot cannot be read: {error}") from error
    if not isinstance(message, kind):
        raise Unavailable("an answer about a snapshot is about something else")
    return message
