"""Planted bugs of moves in what a host does with files and memories."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from hawker.host.changed_blocks import BlockRange
from hawker.host.unreadable import UnreadableBytes, joined
from hawker.runtime.driver import Features
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import HEAP_BITS, FakeHost
from hawker.runtime.spec import InstanceSpec
from hawker.sim.node.kit import WorkerKit
from hawker.volume.moved_blocks import Digests
from hawker.volume.moved_files import BlockChanges, Lost, MovedFile, MovedFiles, StoredPiece

T = TypeVar("T")


class FilesOver:
    """Files of which a bug does something else."""

    def __init__(self, files: MovedFiles) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class ComparesNothing(FilesOver):
    """What was copied is not compared with its source."""

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        return Digests(spans[-1].end, {})

    async def digests_of_draft(self, draft: str, spans: Sequence[BlockRange]) -> Digests:
        return Digests(spans[-1].end, {})


class SeesNoChange(FilesOver):
    """What a machine writes during the copy is not noticed."""

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        found = await self._files.changed(file, since)
        return BlockChanges(found.mark, found.spans and ())


class BelievesOldMarks(FilesOver):
    """A source that was killed meanwhile says that nothing changed before."""

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        found = await self._files.changed(file, since)
        if found.spans is not None or not since:
            return found
        return BlockChanges(found.mark or since, ())


class LeavesRoots(FilesOver):
    """What a machine kept of its root filesystem is not put where its new owner looks for it."""

    async def adopt(self, draft: str, file: MovedFile) -> None:
        await (self._files.drop(draft) if file.layer else self._files.adopt(draft, file))


class ZerosUnsaid(FilesOver):
    """What the disk cannot read goes as zeros, and nobody notes that."""

    async def piece(self, file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        return await _silently(lost, lambda gone: self._files.piece(file, offset, count, gone))

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        return await _silently(lost, lambda gone: self._files.digests(file, spans, gone))

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        return await _silently(lost, lambda gone: self._files.blocks(file, spans, gone))


async def _silently(lost: Lost, read: Callable[[Lost], Awaitable[T]]) -> T:
    gone = tuple(lost or ())
    while True:
        try:
            return await read(gone)
        except UnreadableBytes as error:
            gone = joined([*gone, error.lost])


class NeverSyncs(FilesOver):
    """A copy counts before it is on disk."""

    async def sync(self, draft: str) -> None:
        return None


def files_kit(made: Callable[[MovedFiles], object]) -> WorkerKit:
    def over(files: MovedFiles) -> MovedFiles:
        over: MovedFiles = made(files)  # type: ignore[assignment]  # what it has not is the sound one's
        return over

    return WorkerKit(moved_files=over)


class RetiresEarly(FilesOver):
    """A source whose file is gone as soon as it was compared."""

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        found = await self._files.digests(file, spans, lost)
        await self._files.retire(file, 0)
        return found


class ForgetsMemory(FakeDriver):
    """A machine that came suspended goes on from nothing."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        self._arrived = host.arrived

    async def take_in(self, spec: InstanceSpec) -> None:
        if spec.machine_id in self._arrived:
            self._arrived[spec.machine_id] = self._arrived[spec.machine_id] >> HEAP_BITS << HEAP_BITS
        await super().take_in(spec)
