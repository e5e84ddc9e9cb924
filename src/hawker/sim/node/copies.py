"""The simulated host's copies of volumes. They outlive the daemon; every call is an edge where it may die, and so is
the middle of a copy, which then leaves nothing.
"""

from collections import Counter
from dataclasses import replace

import anyio

from hawker.errors import NotFound
from hawker.ids import SnapshotId, VolumeId
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeHostPart
from hawker.sim.node.fake_volumes import FakeVolume, FakeVolumes
from hawker.worker.volumes.copies import Room

_FREE = 1 << 50


class FakeCopies(FakeHostPart):
    """Keeps `copies.Copies` in memory, beside the volumes. `taken` counts how often a snapshot was taken: the second
    time, it would be of another moment. `frozen` are volumes that a killed daemon's helper left so. While one is
    `held`, no snapshot is restored."""

    def __init__(self, fuse: CrashPoints, crates: FakeVolumes) -> None:
        super().__init__(fuse)
        self.snapshots: dict[SnapshotId, FakeVolume] = {}
        self.taken: Counter[SnapshotId] = Counter()
        self.frozen: set[VolumeId] = set()
        self.free_bytes = _FREE
        self.held: anyio.Event | None = None
        self._crates = crates

    async def room(self, copied: VolumeId | SnapshotId) -> Room:
        block = self.snapshots.get(SnapshotId(copied)) or self._crates.files.get(VolumeId(copied))
        return Room(0 if block is None else block.size_bytes, self.free_bytes)

    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        await self._edge("take")
        if snapshot_id not in self.snapshots:
            source = self._volume(volume_id)
            await self._fuse.pass_edge()
            self.snapshots[snapshot_id] = replace(source)
            self.taken[snapshot_id] += 1
        await self._edge("take", after=True)
        return self.snapshots[snapshot_id].size_bytes

    async def restore(self, snapshot_id: SnapshotId, volume_id: VolumeId) -> None:
        await self._edge("restore")
        if self.held is not None:
            await self.held.wait()
        if volume_id not in self._crates.files:
            self._fill(volume_id, self._snapshot(snapshot_id))
        await self._edge("restore", after=True)

    async def fork(self, source: VolumeId, volume_id: VolumeId) -> None:
        await self._edge("fork")
        if volume_id not in self._crates.files:
            self._fill(volume_id, self._volume(source))
        await self._edge("fork", after=True)

    async def drop(self, snapshot_id: SnapshotId) -> None:
        await self._edge("drop")
        self.snapshots.pop(snapshot_id, None)
        await self._edge("drop", after=True)

    async def list(self) -> list[SnapshotId]:
        return sorted(self.snapshots)

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        self.frozen -= mounted

    def _fill(self, volume_id: VolumeId, content: FakeVolume) -> None:
        self._crates.files[volume_id] = replace(content)
        self._crates.made[volume_id] += 1

    def _volume(self, volume_id: VolumeId) -> FakeVolume:
        if volume_id not in self._crates.files:
            raise NotFound(f"the file of volume {volume_id} is not there")
        return self._crates.files[volume_id]

    def _snapshot(self, snapshot_id: SnapshotId) -> FakeVolume:
        if snapshot_id not in self.snapshots:
            raise NotFound(f"the file of snapshot {snapshot_id} is not there")
        return self.snapshots[snapshot_id]
