"""Hosts that do not keep the contract of copies."""

from typing import Any, cast

from hawker.ids import SnapshotId, VolumeId
from hawker.sim.node.copies import FakeCopies
from hawker.worker.volumes.copies import Copies


class _Wrapped:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copies, name)


class _TakesAnew(_Wrapped):
    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        assert isinstance(self._copies, FakeCopies)
        self._copies.snapshots.pop(snapshot_id, None)
        return await self._copies.take(volume_id, snapshot_id)


def takes_anew(copies: Copies) -> Copies:
    """A snapshot that is there already is replaced by one of now."""
    return cast(Copies, _TakesAnew(copies))
