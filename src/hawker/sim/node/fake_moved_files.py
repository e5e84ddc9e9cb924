"""The played host's files of volumes that move: what a volume holds travels in pieces, and a draft that was not synced
is lost with the power.
"""

from hawker.errors import NotFound
from hawker.ids import VolumeId
from hawker.record.volume import Fstype
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart
from hawker.sim.node.fake_volumes import FakeVolume, FakeVolumes
from hawker.volume.moved_files import StoredPiece

PIECES = 4
_PIECE_BYTES = 1 << 20


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

    def cut_power(self) -> None:
        """What was not synced is gone."""
        self.drafted = {move: dict(self._synced.get(move, {})) for move in self.drafted}

    async def stored_bytes(self, volume_id: VolumeId) -> int:
        self._file(volume_id)
        return PIECES * _PIECE_BYTES

    async def flush(self, volume_id: VolumeId) -> None:
        await self._edge("flush")

    async def piece(self, volume_id: VolumeId, offset: int, count: int) -> StoredPiece | None:
        content = self._file(volume_id).content
        number = -(-offset // _PIECE_BYTES)
        if number >= PIECES:
            return None
        return StoredPiece(number * _PIECE_BYTES, f"{number}:{content}".encode().ljust(_PIECE_BYTES, b"."))

    async def digest(self, volume_id: VolumeId) -> str:
        await self._edge("digest")
        return f"content {self._file(volume_id).content}"

    async def begin(self, move: str, size_bytes: int, upto: int) -> None:
        await self._edge("begin")
        self._sizes[move] = size_bytes
        kept = self.drafted.get(move, {})
        self.drafted[move] = {offset: data for offset, data in kept.items() if offset < upto}

    async def write(self, move: str, piece: StoredPiece) -> None:
        await self._edge("write")
        said = piece.data.rstrip(b".")
        if self.spoils:
            self.spoils -= 1
            said = said.partition(b":")[0] + b":-7"
        if move in self.drafted:
            self.drafted[move][piece.offset] = said

    async def sync(self, move: str) -> None:
        await self._edge("sync")
        self._synced[move] = dict(self.drafted.get(move, {}))

    async def digest_of_draft(self, move: str) -> str:
        await self._edge("digest_of_draft")
        return f"content {self._content(move)}"

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
        found = {data.partition(b":")[2] for data in self.drafted.get(move, {}).values()}
        whole = len(self.drafted.get(move, {})) == PIECES and len(found) == 1
        return int(found.pop()) if whole else None

    def _file(self, volume_id: VolumeId) -> FakeVolume:
        if volume_id not in self._volumes.files:
            raise NotFound(f"the file of volume {volume_id} is not there")
        return self._volumes.files[volume_id]
