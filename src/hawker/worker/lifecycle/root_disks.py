"""The root filesystems of machines with kernels of their own: an image's block file, shared and read-only, and a sparse
ext4 of the machine's own, which the guest joins. Nothing of either is ever mounted on this host.

`DIR/machines/ID/layers/INSTANCE/disk` is the machine's writable layer, or under another name if it is kept longer;
`DIR/machines/ID/rootdisk` is a link to the one that its instance has. Layers are copies of templates in `DIR/layers`.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hawker.config.effective import EffectiveTempDir
from hawker.errors import CannotStart, NotServed, WrongState
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host import sparse
from hawker.host.block import detach_loop, loops
from hawker.host.ext4 import LEAST_MIB, Ext4Templates
from hawker.host.mount import empty_trash, mounts, unmount
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.volume.moved_files import FilePlace
from hawker.worker.lifecycle.host_adapters import ContainerMounts, ContainerRoot


class DiskRootfs:
    """Keeps `host_adapters.Rootfs`. `disk_mib` is the size of new layers that ask for none; one that is kept stays as
    large as it was made."""

    def __init__(self, directory: Path, images: ImageCache, disk_mib: int) -> None:
        if disk_mib < LEAST_MIB:
            raise CannotStart(f"machine_disk_mib is {disk_mib}: machines with a kernel of their own need {LEAST_MIB}")
        self._machines = directory / "machines"
        self._mounts = directory / "mounts"
        self._templates = Ext4Templates(directory / "layers")
        self._trash = directory / "trash"
        self._images = images
        self._disk_mib = disk_mib

    async def mount(
        self,
        machine_id: MachineId,
        instance_id: InstanceId,
        image: Digest,
        *,
        kept: str | None = None,
        size_mib: int | None = None,
        first_id: int | None = None,
    ) -> str:
        """The layer's block file. Ids are its guest's own affair."""
        layer = self._layers(machine_id) / (kept or instance_id)
        if not self._has(machine_id, layer):
            await self.unmount(machine_id, kept=kept)
            self._images.block_path(image)
            inside("imaged")
            if not _disk(layer).exists():
                await self._make(layer, size_mib or self._disk_mib)
            inside("layered")
            _point(self._current(machine_id), _disk(layer))
        return str(_disk(layer))

    async def _make(self, layer: Path, size_mib: int) -> None:
        os.makedirs(layer, mode=0o700, exist_ok=True)
        draft = layer / "draft"
        await sparse.draft(await self._templates.of(size_mib), draft)
        await sparse.publish(draft, _disk(layer))

    async def mount_containers(
        self,
        machine_id: MachineId,
        instance_id: InstanceId,
        roots: Sequence[ContainerRoot],
        volumes: Sequence[EffectiveTempDir],
        *,
        size_mib: int | None = None,
        first_id: int | None = None,
    ) -> ContainerMounts:
        raise NotServed("machines with a kernel of their own hold one container")

    async def unmount(self, machine_id: MachineId, *, kept: str | None = None) -> None:
        self._current(machine_id).unlink(missing_ok=True)
        inside("detached")
        if self._layers(machine_id).is_dir():
            for layer in self._layers(machine_id).iterdir():
                if layer.name != kept:
                    self._discard(layer)

    async def remove(self, machine_id: MachineId) -> None:
        await self.unmount(machine_id)
        self._discard(self._machines / machine_id)

    def kept(self, machine_id: MachineId, name: str) -> FilePlace:
        """No host mounts it."""
        layer = self._layers(machine_id) / name
        return FilePlace(_disk(layer), layer / "mounted")

    def _discard(self, directory: Path) -> None:
        """Moved away, to be removed later; no error when it is not there."""
        if directory.exists():
            self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(directory, tempfile.mkdtemp(dir=self._trash))

    async def forget_image(self, image: Digest) -> None:
        """Does nothing, since nothing here has the image: an image that a machine was made from is not removed before
        the machine is."""

    async def sweep(self) -> None:
        """Empties the trash, and removes templates of sizes that are no longer asked for."""
        await empty_trash(self._trash)
        await self._templates.tidy()

    async def withdraw(self) -> None:
        await self.sweep()
        await in_thread(Pool.HOST, self._templates.clear)

    async def list(self) -> list[MachineId]:
        return [MachineId(name) for name in sorted(os.listdir(self._machines))] if self._machines.is_dir() else []

    async def visible(self) -> frozenset[MachineId]:
        """The machines whose instance's layer is there."""
        return frozenset(each for each in await self.list() if self._current(each).exists())

    async def reveal(self, machine_id: MachineId, pid: int) -> None:
        """Point to the machine's only layer again. One that was removed is gone."""
        found = [layer for layer in self._layers(machine_id).glob("*") if _disk(layer).exists()]
        if len(found) != 1:
            what = "is gone" if not found else "cannot be told from another one"
            raise WrongState(f"the disk of machine {machine_id} {what}: its next start makes a new one")
        _point(self._current(machine_id), _disk(found[0]))

    async def strays(self) -> tuple[str, ...]:
        return await in_thread(Pool.HOST, self._find_strays)

    def _find_strays(self) -> tuple[str, ...]:
        """Whatever is mounted of machines or images, or has a loop device, is none of ours."""
        targets = (each.target for each in mounts())
        found = [str(each) for each in targets if any(each.is_relative_to(own) for own in self._owned)]
        return (*sorted(found), *(device for own in (self._machines, self._images.root) for device, _ in loops(own)))

    @property
    def _owned(self) -> tuple[Path, Path]:
        return self._machines, self._mounts

    async def clear(self, stray: str) -> None:
        path = Path(stray)
        if path.is_relative_to("/dev"):
            return await in_thread(Pool.HOST, detach_loop, stray)
        assert any(path.is_relative_to(own) for own in self._owned)
        await in_thread(Pool.HOST, unmount, path)

    def _has(self, machine_id: MachineId, layer: Path) -> bool:
        """Whether the machine's instance has this layer, and it is whole."""
        current = self._current(machine_id)
        return current.is_symlink() and current.resolve() == _disk(layer).resolve() and _disk(layer).exists()

    def _current(self, machine_id: MachineId) -> Path:
        return self._machines / machine_id / "rootdisk"

    def _layers(self, machine_id: MachineId) -> Path:
        return self._machines / machine_id / "layers"


def _disk(layer: Path) -> Path:
    return layer / "disk"


def _point(link: Path, target: Path) -> None:
    """In one step, whatever was there."""
    draft = link.with_name(f"{link.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target.relative_to(link.parent))
    draft.rename(link)
