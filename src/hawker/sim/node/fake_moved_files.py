"""The played host's files of what moves: what a volume or a kept layer holds travels in pieces, also while a machine
writes to it, and a draft that was not synced is lost with the power. A piece is a block; each write is to the next one.
"""

import errno
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hawker.errors import NotFound, NotServed
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, spans_of
from hawker.host.unreadable import FileRange, UnreadableBytes
from hawker.ids import InstanceId, MachineId, SnapshotId, VolumeId, is_snapshot_id
from hawker.record.volume import Fstype
from hawker.runtime.fake_driver import MEMORY_BYTES
from hawker.runtime.fake_host import FakeHost, Instance
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart, FakeRootfs
from hawker.sim.node.fake_volumes import FakeCopies, FakeVolume, FakeVolumes
from hawker.volume.moved_blocks import DIGEST_BYTES, Digests
from hawker.volume.moved_files import BlockChanges, Lost, MovedFile, StoredPiece

PIECES = 16
LAYER_BYTES = 256 << 20


class FakeMovedFiles(FakeHostPart):
    """Keeps `MovedFiles` in memory, beside the volumes, the layers that machines keep and the memories of those that
    are suspended. While `spoils` is above 0, that many more pieces are written wrong, as by a disk that lies. While it
    `refuses`, no draft is put in its place. While `misses` is above 0, that many more watches miss something."""

    def __init__(
        self,
        crash_points: CrashPoints,
        volumes: FakeVolumes,
        rootfs: FakeRootfs,
        copies: FakeCopies,
        host: FakeHost,
    ) -> None:
        super().__init__(crash_points)
        self.spoils = 0
        self.misses = 0
        self.refuses = False
        self.drafted: dict[str, dict[int, bytes]] = {}
        self.retired: dict[tuple[str, int], int] = {}  # by id and generation
        self.plain: set[str] = set()  # machines that keep a directory
        self._sizes: dict[str, int] = {}
        self._retired_holes: dict[tuple[str, int], tuple[int, frozenset[int]]] = {}  # and the size in bytes
        self._synced: dict[str, dict[int, bytes]] = {}
        self._volumes = volumes
        self._rootfs = rootfs
        self._copies = copies
        self._host = host
        self._retired_memories: dict[tuple[str, int], tuple[Instance, int]] = {}
        self._watches: dict[str, tuple[str, list[int]]] = {}  # the name, and what was there at each mark

    def cut_power(self) -> None:
        """What was not synced is gone."""
        self.drafted = {draft: dict(self._synced.get(draft, {})) for draft in self.drafted}

    def forget_watches(self) -> None:
        """The daemon was killed."""
        self._watches.clear()

    async def trim(self, file: MovedFile, start: int) -> int | None:
        return None

    async def settle(self, file: MovedFile) -> None:
        await self._edge("settle")

    async def watch(self, file: MovedFile, name: str) -> None:
        await self._edge("watch")
        self._watches[file.id] = (name, [])

    async def changed(self, file: MovedFile, since: str) -> BlockChanges:
        await self._edge("changed")
        content = self._content(file)
        if file.id not in self._watches:
            return BlockChanges("", None)
        name, marks = self._watches[file.id]
        if self.misses and since:
            self.misses -= 1
            self._watches[file.id] = name, marks = f"{name}+", []
        marks.append(content)
        asked, _, mark = since.partition("/")
        spans = None
        if asked == name:
            before = marks[int(mark)]
            spans = spans_of(each for each in range(PIECES) if _written(each, before) != _written(each, content))
        return BlockChanges(f"{name}/{len(marks) - 1}", spans)

    async def keep_watch(self, file: MovedFile) -> None:
        pass

    @property
    def watched(self) -> set[str]:
        """Ids of the files of which it is noted what is written."""
        return set(self._watches)

    async def unwatch(self, file: MovedFile) -> None:
        self._watches.pop(file.id, None)

    async def end_watches(self, open: Collection[str]) -> None:
        for id in [each for each in self._watches if each not in open]:
            del self._watches[id]

    async def digests(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Digests:
        await self._edge("digests")
        content = self._content(file)
        there = self._there(file, _within(spans), lost)
        return _digests(spans, {number: _said(number, content) for number in there})

    async def blocks(self, file: MovedFile, spans: Sequence[BlockRange], lost: Lost = None) -> Mapping[int, bytes]:
        content = self._content(file)
        return {number: _bytes(number, content) for number in self._there(file, _within(spans), lost)}

    async def size_bytes(self, file: MovedFile) -> int | None:
        if file.id in self.plain:
            raise NotServed("it is a directory: machine_disk_mib was 0")
        if file.memory:
            return MEMORY_BYTES if MachineId(file.id) in self._host.memories else None
        if file.layer:
            return LAYER_BYTES if (MachineId(file.id), file.layer) in self._rootfs.writes else None
        return self._volumes.files[VolumeId(file.id)].size_bytes if VolumeId(file.id) in self._volumes.files else None

    def path(self, file: MovedFile) -> str:
        return f"/machines/{file.id}/rootfs" if file.layer else f"/volumes/{file.id}/mounted"

    async def stored_bytes(self, file: MovedFile) -> int:
        self._content(file)
        return PIECES * BLOCK_BYTES

    async def flush(self, file: MovedFile) -> None:
        await self._edge("flush")

    async def piece(self, file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        content = self._content(file)
        number = -(-offset // BLOCK_BYTES)
        if number >= PIECES:
            return None
        is_there = bool(self._there(file, [number], lost))
        return StoredPiece(number * BLOCK_BYTES, _bytes(number, content) if is_there else bytes(BLOCK_BYTES))

    def _there(self, file: MovedFile, numbers: Sequence[int], lost: Lost) -> list[int]:
        """Those that are not zeros. Raises `UnreadableBytes`."""
        gone = {number for number in numbers for each in lost or () if each.offset <= number * BLOCK_BYTES < each.end}
        volume = VolumeId(file.id)
        if file.layer or file.memory:
            return list(numbers)
        if is_snapshot_id(file.id):
            return [number for number in numbers if number not in self._copies.snapshots[SnapshotId(file.id)].holes]
        rotten = sorted(self._volumes.rot.get(volume, frozenset()) & set(numbers) - gone)
        if rotten:
            raise UnreadableBytes(Path(file.id), FileRange(rotten[0] * BLOCK_BYTES, BLOCK_BYTES))
        return [number for number in numbers if number not in gone | self._volumes.files[volume].holes]

    async def begin(self, draft: str, size_bytes: int, upto: int) -> None:
        await self._edge("begin")
        self._sizes[draft] = size_bytes
        kept = self.drafted.get(draft, {})
        self.drafted[draft] = {offset: data for offset, data in kept.items() if offset < upto}

    async def write(self, draft: str, piece: StoredPiece) -> None:
        await self._edge("write")
        self._put(draft, piece.offset, piece.data)

    async def overwrite(self, draft: str, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
        await self._edge("overwrite")
        for number in _within(spans):
            self._put(draft, number * BLOCK_BYTES, blocks.get(number, b""))

    def _put(self, draft: str, offset: int, data: bytes) -> None:
        said = data.partition(b".")[0].partition(b"\0")[0]  # `rstrip` looks at each byte of the padding
        if self.spoils:
            self.spoils -= 1
            said = (said.partition(b":")[0] or b"0") + b":-7"
        if draft in self.drafted and not said:
            self.drafted[draft].pop(offset, None)
        elif draft in self.drafted:
            self.drafted[draft][offset] = said

    async def sync(self, draft: str) -> None:
        await self._edge("sync")
        self._synced[draft] = dict(self.drafted.get(draft, {}))

    async def digests_of_draft(self, draft: str, spans: Sequence[BlockRange]) -> Digests:
        await self._edge("digests_of_draft")
        there = self.drafted.get(draft, {})
        return _digests(spans, {offset // BLOCK_BYTES: data for offset, data in there.items()})

    async def adopt(self, draft: str, file: MovedFile) -> None:
        await self._edge("adopt")
        if self.refuses:
            raise OSError(errno.EROFS, "Read-only file system")
        if draft in self.drafted:
            content = self._drafted(draft)
            there = {offset // BLOCK_BYTES for offset in self.drafted[draft]}
            holes = frozenset(range(PIECES)) - there
            self._enter(file, self._sizes[draft], -1 if content is None else content, holes)
            del self.drafted[draft]
        await self._edge("adopt", after=True)

    def _enter(self, file: MovedFile, size: int, content: int, holes: frozenset[int]) -> None:
        if is_snapshot_id(file.id):
            self._copies.snapshots[SnapshotId(file.id)] = FakeVolume(size, size, Fstype.EXT4, content, holes)
            return
        if file.memory:
            self._host.arrived[MachineId(file.id)] = -1 if holes else content
            return
        if not file.layer:
            self._volumes.files[VolumeId(file.id)] = FakeVolume(size, size, Fstype.EXT4, content, holes)
            return
        machine_id = MachineId(file.id)
        self._rootfs.directories.add(machine_id)
        self._rootfs.layers[machine_id] = (file.layer, InstanceId("moved"))
        self._rootfs.writes[machine_id, file.layer] = -1 if holes else content

    async def drop(self, draft: str, adopted: MovedFile | None = None) -> None:
        await self._edge("drop")
        self.drafted.pop(draft, None)
        if adopted is not None and not adopted.memory:
            self._taken(adopted)

    async def drafts(self) -> list[str]:
        return sorted(self.drafted)

    async def retire(self, file: MovedFile, generation: int) -> None:
        await self._edge("retire")
        if file.memory:
            aside = self._host.set_aside(MachineId(file.id))
            if aside is not None:
                self._retired_memories[file.id, generation] = aside
            return await self._edge("retire", after=True)
        there = None if file.layer else self._volumes.files.get(VolumeId(file.id))
        content = self._taken(file)
        if content is not None:
            self.retired[file.id, generation] = content
            self._retired_holes[file.id, generation] = (
                (0, frozenset()) if there is None else (there.size_bytes, there.holes)
            )
        await self._edge("retire", after=True)

    async def restore(self, file: MovedFile, generation: int) -> None:
        await self._edge("restore")
        aside = self._retired_memories.pop((file.id, generation), None) if file.memory else None
        if aside is not None:
            self._host.put_back(*aside)
        content = None if file.memory else self.retired.pop((file.id, generation), None)
        if content is not None:
            size, holes = self._retired_holes.pop((file.id, generation))
            self._enter(file, size, content, holes)
        if await self.size_bytes(file) is None:
            raise NotFound(f"the file of {file.id} is not there")
        await self._edge("restore", after=True)

    async def forget(self, file: MovedFile, generation: int) -> None:
        await self._edge("forget")
        if file.memory:
            self._retired_memories.pop((file.id, generation), None)
            return
        self.retired.pop((file.id, generation), None)

    def kept(self, file: MovedFile, generation: int) -> int:
        """How often it was written to when it was put aside, or as it is."""
        if file.memory:
            aside = self._retired_memories.get((file.id, generation))
            return self._host.heaps.get(MachineId(file.id), 0) if aside is None else aside[1]
        retired = self.retired.get((file.id, generation))
        return self._content(file) if retired is None else retired

    def _drafted(self, draft: str) -> int | None:
        """None when it is not one moment's. A part that is not there is zeros."""
        there = {offset // BLOCK_BYTES: data for offset, data in self.drafted.get(draft, {}).items()}
        if not there:
            return None
        newest = max(int(data.partition(b":")[2]) for data in there.values())
        return newest if all(data == _said(number, newest) for number, data in there.items()) else None

    def _taken(self, file: MovedFile) -> int | None:
        """What was in it; it is not there any more."""
        if file.layer:
            return self._rootfs.writes.pop((MachineId(file.id), file.layer), None)
        volume = self._volumes.files.pop(VolumeId(file.id), None)
        return None if volume is None else volume.content

    def _content(self, file: MovedFile) -> int:
        """How often it was written to. Raises `NotFound`."""
        layer, volume, snapshot = (MachineId(file.id), file.layer), VolumeId(file.id), SnapshotId(file.id)
        if file.memory and MachineId(file.id) in self._host.memories:
            return self._host.heaps[MachineId(file.id)]
        if snapshot in self._copies.snapshots:
            return self._copies.snapshots[snapshot].content
        if file.layer and layer in self._rootfs.writes:
            return self._rootfs.writes[layer]
        if file.layer or file.memory or volume not in self._volumes.files:
            raise NotFound(f"the file of {file.id} is not there")
        return self._volumes.files[volume].content


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
