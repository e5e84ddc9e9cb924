"""The played host's files of volumes that move: what a volume holds travels in pieces, also while a machine writes to
it, and a draft that was not synced is lost with the power. A piece is a block; each write is to the next one.
"""

from collections.abc import Collection, Mapping, Sequence

from hawker.errors import NotFound
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, spans_of
from hawker.ids import VolumeId
from hawker.record.volume import Fstype
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart
from hawker.sim.node.fake_volumes import FakeVolume, FakeVolumes
from hawker.volume.moved_blocks import DIGEST_BYTES, Digests
from hawker.volume.moved_files import BlockChanges, StoredPiece

PIECES = 16


class FakeMovedFiles(FakeHostPart):
    """Keeps `MovedFiles` in memory, beside the volumes. While `spoils` is above 0, that many more pieces are written
    wrong, as by a disk that lies."""

    def __init__(self, crash_points: CrashPoints, volumes: FakeVolumes) -> None:
        super().__init__(crash_points)
        self.spoils = 0
        self.drafted: dict[str, dict[int, bytes]] = {}
        self.retired: dict[tuple[VolumeId, int], FakeVolume] = {}
        self._sizes: dict[str, int] = {}
        self._synced: dict[str, dict[int, bytes]] = {}
        self._volumes = volumes
        self._watches: dict[VolumeId, tuple[str, list[int]]] = {}  # the name, and what was there at each mark

    def cut_power(self) -> None:
        """What was not synced is gone."""
        self.drafted = {move: dict(self._synced.get(move, {})) for move in self.drafted}

    def forget_watches(self) -> None:
        """The daemon was killed."""
        self._watches.clear()

    async def trim(self, volume_id: VolumeId, start: int) -> int | None:
        return None

    async def settle(self, volume_id: VolumeId) -> None:
        await self._edge("settle")

    async def watch(self, volume_id: VolumeId, name: str) -> None:
        await self._edge("watch")
        self._watches[volume_id] = (name, [])

    async def changed(self, volume_id: VolumeId, since: str) -> BlockChanges:
        await self._edge("changed")
        content = self._file(volume_id).content
        if volume_id not in self._watches:
            return BlockChanges("", None)
        name, marks = self._watches[volume_id]
        marks.append(content)
        asked, _, mark = since.partition("/")
        spans = None
        if asked == name:
            before = marks[int(mark)]
            spans = spans_of(each for each in range(PIECES) if _written(each, before) != _written(each, content))
        return BlockChanges(f"{name}/{len(marks) - 1}", spans)

    async def unwatch(self, volume_id: VolumeId) -> None:
        self._watches.pop(volume_id, None)

    async def end_watches(self, open: Collection[VolumeId]) -> None:
        for volume_id in [each for each in self._watches if each not in open]:
            del self._watches[volume_id]

    async def digests(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Digests:
        await self._edge("digests")
        content = self._file(volume_id).content
        return _digests(spans, {number: _said(number, content) for number in range(PIECES)})

    async def blocks(self, volume_id: VolumeId, spans: Sequence[BlockRange]) -> Mapping[int, bytes]:
        content = self._file(volume_id).content
        return {number: _bytes(number, content) for number in _within(spans)}

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        self._file(volume_id)
        return PIECES * BLOCK_BYTES

    async def flush(self, volume_id: VolumeId) -> None:
        await self._edge("flush")

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        content = self._file(volume_id).content
        number = -(-offset // BLOCK_BYTES)
        if number >= PIECES:
            return None
        return StoredPiece(number * BLOCK_BYTES, _bytes(number, content))

    async def begin(self, move: str, size_bytes: int, upto: int) -> None:
        await self._edge("begin")
        self._sizes[move] = size_bytes
        kept = self.drafted.get(move, {})
        self.drafted[move] = {offset: data for offset, data in kept.items() if offset < upto}

    async def write(self, move: str, piece: StoredPiece) -> None:
        await self._edge("write")
        self._put(move, piece.offset, piece.data)

    async def overwrite(self, move: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        await self._edge("overwrite")
        for number, data in blocks.items():
            self._put(move, number * BLOCK_BYTES, data)

    def _put(self, move: str, offset: int, data: bytes) -> None:
        said = data.rstrip(b".")
        if self.spoils:
            self.spoils -= 1
            said = said.partition(b":")[0] + b":-7"
        if move in self.drafted:
            self.drafted[move][offset] = said

    async def sync(self, move: str) -> None:
        await self._edge("sync")
        self._synced[move] = dict(self.drafted.get(move, {}))

    async def digests_of_draft(self, move: str, spans: Sequence[BlockRange]) -> Digests:
        await self._edge("digests_of_draft")
        there = self.drafted.get(move, {})
        return _digests(spans, {offset // BLOCK_BYTES: data for offset, data in there.items()})

    async def adopt(self, move: str, volume_id: VolumeId) -> None:
        await self._edge("adopt")
        if move in self.drafted:
            content, size = self._content(move), self._sizes[move]
            self._volumes.files[volume_id] = FakeVolume(size, size, Fstype.EXT4, -1 if content is None else content)
            del self.drafted[move]
        await self._edge("adopt", after=True)

    async def drop(self, move: str, volume_id: VolumeId | None = None) -> None:
        await self._edge("drop")
        self.drafted.pop(move, None)
        if volume_id is not None:
            self._volumes.files.pop(volume_id, None)

    async def drafts(self) -> list[str]:
        return sorted(self.drafted)

    async def retire(self, volume_id: VolumeId, generation: int) -> None:
        await self._edge("retire")
        file = self._volumes.files.pop(volume_id, None)
        if file is not None:
            self.retired[volume_id, generation] = file
        await self._edge("retire", after=True)

    async def forget(self, volume_id: VolumeId, generation: int) -> None:
        await self._edge("forget")
        self.retired.pop((volume_id, generation), None)

    def _content(self, move: str) -> int | None:
        """None when it is not one moment's."""
        there = {offset // BLOCK_BYTES: data for offset, data in self.drafted.get(move, {}).items()}
        if len(there) != PIECES:
            return None
        newest = max(int(data.partition(b":")[2]) for data in there.values())
        return newest if all(data == _said(number, newest) for number, data in there.items()) else None

    def _file(self, volume_id: VolumeId) -> FakeVolume:
        if volume_id not in self._volumes.files:
            raise NotFound(f"the file of volume {volume_id} is not there")
        return self._volumes.files[volume_id]


def _within(spans: Sequence[BlockRange]) -> list[int]:
    return [number for number in range(PIECES) if any(each.first <= number < each.end for each in spans)]


def _written(number: int, content: int) -> int:
    """By which of so many writes the block was written last."""
    return content - (content - number) % PIECES


def _said(number: int, content: int) -> bytes:
    return f"{number}:{_written(number, content)}".encode()


def _bytes(number: int, content: int) -> bytes:
    return _said(number, content).ljust(BLOCK_BYTES, b".")


def _digests(spans: Sequence[BlockRange], said: Mapping[int, bytes]) -> Digests:
    found = {number: said[number].ljust(DIGEST_BYTES)[:DIGEST_BYTES] for number in _within(spans) if number in said}
    return Digests(spans[-1].end if spans else 0, found)
