"""Hosts that do not keep the contract of volumes."""

from collections.abc import Callable
from typing import Any, cast

from hawker.ids import VolumeId
from hawker.sim.node.fake_volumes import FakeVolumes
from hawker.worker.volumes.disks import Disk, Disks


class _Wrapped:
    def __init__(self, disks: Disks) -> None:
        self._disks = disks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disks, name)


class _MakesAnew(_Wrapped):
    async def make(self, disk: Disk) -> None:
        assert isinstance(self._disks, FakeVolumes)
        self._disks.files.pop(disk.id, None)
        await self._disks.make(disk)


def makes_anew(disks: Disks) -> Disks:
    """Begins with an empty file whenever it is asked, also when there is one."""
    return cast(Disks, _MakesAnew(disks))


class _StaysMounted(_Wrapped):
    def __init__(self, disks: Disks) -> None:
        super().__init__(disks)
        self._mine: set[VolumeId] = set()

    async def mount(self, disk: Disk) -> str:
        self._mine.add(disk.id)
        return await self._disks.mount(disk)

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        if volume_id in self._mine:
            await self._disks.unmount(volume_id)


def stays_mounted(disks: Disks) -> Disks:
    """Gives back only what it has mounted itself, not what an earlier daemon did."""
    return cast(Disks, _StaysMounted(disks))


class _GrowsFilesOnly(_Wrapped):
    async def grow(self, disk: Disk) -> bool:
        return True


def grows_nothing(disks: Disks) -> Disks:
    """Says that it has grown what it has not."""
    return cast(Disks, _GrowsFilesOnly(disks))
