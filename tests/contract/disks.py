"""The hosts that the contract suite of volumes is run against. A new one is one more entry in `SHOPS`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from hawker.ids import VolumeId
from hawker.record.volume import GB, Fstype
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_volumes import FakeVolumes
from hawker.volume.disks import Disk, Disks
from hawker.volume.host_disks import HostDisks
from tests.waiting import eventually

VOLUME = VolumeId("vol_0123456789abcdef")
OTHER = VolumeId("vol_fedcba9876543210")


@dataclass(slots=True)
class Store:
    """A host with volumes. `renew` gives those that a new daemon on the host has. `damage` spoils a filesystem."""

    disks: Disks
    renew: Callable[[], Disks]
    damage: Callable[[VolumeId], None]


def disk(size_gb: int = 1, volume_id: VolumeId = VOLUME, fstype: Fstype = Fstype.EXT4) -> Disk:
    return Disk(id=volume_id, size_bytes=size_gb * GB, fstype=fstype, encrypted=False)


def played(directory: Path) -> Store:
    crates = FakeVolumes(CrashPoints())

    def damage(volume_id: VolumeId) -> None:
        crates.files[volume_id].damaged = True

    return Store(crates, lambda: crates, damage)


def real(directory: Path) -> Store:
    def damage(volume_id: VolumeId) -> None:
        with (directory / volume_id / "disk").open("r+b") as stream:
            stream.seek(1024 + 56)
            stream.write(b"\xff" * 64)

    return Store(HostDisks(directory), lambda: HostDisks(directory), damage)


SHOPS = [pytest.param(played, id="played"), pytest.param(real, id="real", marks=pytest.mark.root)]
MakeStore = Callable[[Path], Store]
Emptying = Callable[[], Awaitable[None]]


async def empty(store: Store) -> None:
    with anyio.CancelScope(shield=True):
        disks = store.renew()
        for volume_id in await disks.list():
            await disks.remove(volume_id)


async def nothing_astray(disks: Disks) -> None:
    """Once nobody on the host holds what was given back: a container that begins has a copy of all mounts, and who
    looks for a free loop device has it open."""

    async def is_so() -> bool:
        return await disks.strays() == ()

    await eventually(is_so)
