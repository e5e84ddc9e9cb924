"""Encrypted volumes on a host: LUKS2 between a volume's file and its filesystem, open only while something uses it.

A device's name carries the node's id, as everything that a node has on its host. The filesystem is smaller than the
file by LUKS's header.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.errors import BadRequest, Fault
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4
from hawker.host.block import set_capacity
from hawker.host.ext4 import read_superblock
from hawker.host.luks import Luks
from hawker.ids import NodeId, VolumeId
from hawker.record.volume import SealedKey
from hawker.vault import Vault
from hawker.volume.disks import Disk

KEY_BYTES = 64


class VolumeKeys:
    def __init__(self, vault: Vault, clock: Clock) -> None:
        self._vault = vault
        self._clock = clock

    def new(self, volume_id: VolumeId) -> SealedKey:
        return self.seal(volume_id, self._clock.token_bytes(KEY_BYTES))

    def seal(self, volume_id: VolumeId, key: bytes) -> SealedKey:
        """A key that came from elsewhere, for this volume."""
        return SealedKey(volume=volume_id, sealed=self._vault.seal(_owner(volume_id), key))

    def open(self, key: SealedKey) -> bytes:
        """The key of a volume in clear. Raises `Fault` when the node's own key is not the one that it was sealed
        under."""
        try:
            return self._vault.open(_owner(key.volume), key.sealed)
        except Fault as error:
            raise Fault(
                f"the key of volume {key.volume} cannot be opened: the node's key was replaced since the volume was "
                "made; put the file `key` of its data directory back"
            ) from error


def _owner(volume_id: VolumeId) -> str:
    return f"volume/{volume_id}"


# The keys of encrypted volumes: random, one for each volume, sealed under the node's own key and kept in its
# record. Copies of a volume have its bytes, and so its key; it stays sealed for the volume that it was made for.


class Ciphers:
    def __init__(self, luks: Luks, keys: VolumeKeys, node_id: NodeId) -> None:
        self._luks = luks
        self._keys = keys
        self._prefix = f"hawker-{node_id}-"
        self._trial = f"hawker-{node_id}.trial"
        self._trying = anyio.Lock()

    async def missing(self, directory: Path) -> str | None:
        """The sentence that says what this host lacks, and what to do about it; None when it lacks nothing. The first
        call may encrypt a file in `directory`."""
        async with self._trying:
            return await self._luks.trial(directory / ".trial", self._trial)

    @asynccontextmanager
    async def fresh(self, disk: Disk, file: Path) -> AsyncIterator[Path]:
        """Encrypt an empty file; the device over it within the block. What an earlier try left open is closed."""
        name, key = self._name(disk.id), self._key(disk)
        await self._luks.close(name)
        await self._luks.format(file, key)
        yield await self._luks.open(file, name, key)
        await self._luks.close(name)

    async def mount(self, disk: Disk, file: Path, target: Path) -> bool:
        """Open it, and mount what is in it: checked where that is needed, and as large as its file. Whether it is."""
        device = await self._luks.open(file, self._name(disk.id), self._key(disk))
        await self._fit(disk, file)
        if disk.repair:
            await ext4.repair_filesystem(device)
        found = await in_thread(Pool.DISKS, read_superblock, device)
        behind = found is not None and found.bytes < _size(device)
        if behind and not ext4.may_grow_mounted():
            await ext4.grow_unmounted(device)
            behind = False
        elif found is not None and not found.whole:
            await ext4.check_filesystem(device)
        ext4.mount_device(str(device), target, file.name)
        return not behind or await in_thread(Pool.DISKS, ext4.resize_mounted, target, _size(device))

    async def grow_mounted(self, disk: Disk, file: Path, target: Path) -> bool:
        """Whether the filesystem is as large as its file now."""
        await self._fit(disk, file)
        return await in_thread(Pool.DISKS, ext4.resize_mounted, target, _size(self._luks.device(self._name(disk.id))))

    async def close(self, volume_id: VolumeId) -> None:
        """Closes the volume's device once nobody uses it any more; no error when it is not open."""
        await self._luks.close(self._name(volume_id))

    def device(self, volume_id: VolumeId) -> Path:
        return self._luks.device(self._name(volume_id))

    def opened(self) -> frozenset[VolumeId]:
        return frozenset(VolumeId(name.removeprefix(self._prefix)) for name in self._luks.opened(self._prefix))

    async def _fit(self, disk: Disk, file: Path) -> None:
        """The device as large as the file."""
        loop = ext4.device_of(file)
        if loop is not None:
            set_capacity(loop)
        await self._luks.grow(self._name(disk.id), self._key(disk))

    def _name(self, volume_id: VolumeId) -> str:
        return f"{self._prefix}{volume_id}"

    def _key(self, disk: Disk) -> bytes:
        if disk.key is None:
            raise BadRequest(f"volume {disk.id} is encrypted, and its record has no key")
        return self._keys.open(disk.key)


def _size(device: Path) -> int:
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)
