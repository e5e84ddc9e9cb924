"""The root filesystems of a node's machines: image and host joined.

`DIR/mounts/DIGEST` holds each image's block file, mounted once; `DIR/machines/ID/rootfs` a machine's overlay over it,
whose writable layer is in `DIR/machines/ID/layers/INSTANCE`. Mounting takes well under a millisecond.
"""

import os
from pathlib import Path

from hawker.host.mount import discard_overlay, empty_trash, fresh_overlay, is_mounted, mount_image, unmount
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache


class HostRootfs:
    """Keeps `deps.Rootfs`."""

    def __init__(self, directory: Path, images: ImageCache) -> None:
        self._machines = directory / "machines"
        self._mounts = directory / "mounts"
        self._trash = directory / "trash"
        self._images = images

    async def mount(self, machine_id: MachineId, instance_id: InstanceId, image: Digest) -> str:
        target, layer = self._machines / machine_id / "rootfs", self._layers(machine_id) / instance_id
        if not (layer.exists() and is_mounted(target)):
            await self.unmount(machine_id)
            target.mkdir(parents=True, exist_ok=True)
            layer.parent.mkdir(exist_ok=True)
            fresh_overlay(self._mounted(image), layer, target, self._trash)
        return str(target)

    async def unmount(self, machine_id: MachineId) -> None:
        target = self._machines / machine_id / "rootfs"
        unmount(target)
        if self._layers(machine_id).is_dir():
            for layer in self._layers(machine_id).iterdir():
                discard_overlay(layer, target, self._trash)

    async def remove(self, machine_id: MachineId) -> None:
        """The machine's whole directory, moved away to be emptied later."""
        await self.unmount(machine_id)
        discard_overlay(self._machines / machine_id, self._machines / machine_id / "rootfs", self._trash)

    async def list(self) -> list[MachineId]:
        return [MachineId(name) for name in sorted(os.listdir(self._machines))] if self._machines.is_dir() else []

    async def forget_image(self, image: Digest) -> None:
        """Let go of an image that was removed."""
        unmount(self._mount_point(image))
        if self._mount_point(image).is_dir():
            self._mount_point(image).rmdir()

    async def sweep(self) -> None:
        """Remove what was moved away."""
        await empty_trash(self._trash)

    async def withdraw(self) -> None:
        for mount_point in self._mounts.iterdir() if self._mounts.is_dir() else ():
            unmount(mount_point)
        await self.sweep()

    def _mounted(self, image: Digest) -> Path:
        target = self._mount_point(image)
        if not is_mounted(target):
            target.mkdir(parents=True, exist_ok=True)
            mount_image(self._images.block_path(image), target)
        return target

    def _mount_point(self, image: Digest) -> Path:
        return self._mounts / image.removeprefix("sha256:")

    def _layers(self, machine_id: MachineId) -> Path:
        return self._machines / machine_id / "layers"
