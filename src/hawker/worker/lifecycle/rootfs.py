"""The root filesystems of a node's machines: image and host joined.

`DIR/mounts/DIGEST` holds each image's block file, mounted once; `DIR/machines/ID/rootfs` a machine's overlay over it,
whose writable layer is at `DIR/machines/ID/layers/INSTANCE`, or under another name if it is kept longer. The layer is
a filesystem of its own with the machine's size, in the file `DIR/machines/ID/disks/INSTANCE`. A layer that an older
version made is a plain directory, and stays one for as long as it is kept.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hawker.clock import Clock
from hawker.config.effective import EffectiveTempDir
from hawker.errors import CannotStart, WrongState
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.block import detach_loop, loops
from hawker.host.ext4 import LEAST_MIB, make_filesystem, mount_filesystem
from hawker.host.layer_disk import LayerDisks, discard_layer, prepare_kept
from hawker.host.mount import (
    NODEV,
    NOSUID,
    discard_overlay,
    empty_trash,
    fresh_overlay,
    is_layer_of,
    is_mounted,
    kept_overlay,
    mount,
    mount_image,
    mounts,
    remount_root,
    shows_layer,
    unmount,
)
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.runtime.driver import container_root
from hawker.volume.moved_files import FilePlace
from hawker.worker.lifecycle.host_adapters import ContainerMounts, ContainerRoot

_OPEN_TO_ALL = 0o1777
_MIB = 1 << 20


class ContainerRoots:
    """The roots of the containers of one machine. `lower` mounts an image and says where; disks of volumes are in
    `disks`."""

    def __init__(self, machine: Path, trash: Path, lower: Callable[[Digest], Path]) -> None:
        self._machine = machine
        self._trash = trash
        self._lower = lower

    def find(
        self, layer: Path, roots: Sequence[ContainerRoot], volumes: Sequence[EffectiveTempDir]
    ) -> ContainerMounts | None:
        """The mounts of this instance that are there; None if they are not whole."""
        targets = [*map(self._root, (each.name for each in roots)), *map(self._volume, (each.name for each in volumes))]
        if not (layer / ".made").exists() or not all(map(is_mounted, targets)):
            return None
        return self._mounted(layer, roots, volumes)

    async def mount(
        self,
        layer: Path,
        roots: Sequence[ContainerRoot],
        volumes: Sequence[EffectiveTempDir],
        first_id: int | None = None,
    ) -> ContainerMounts:
        """Make all of it, where nothing of it is but the mounted layer. What is not an image's goes with the instance,
        so it is the machine's root's on the disk as well."""
        (layer / "machine").mkdir(parents=True, exist_ok=True)
        os.chmod(layer / "machine", 0o755)
        os.chown(layer / "machine", first_id or 0, first_id or 0)
        for volume in volumes:
            await self._make_volume(layer, volume)
            os.chown(self._volume(volume.name), first_id or 0, first_id or 0)
        for root in roots:
            lower = self._lower(root.image)
            inside("imaged")
            fresh_overlay(lower, layer / "roots" / root.name, self._root(root.name), self._trash, first_id=first_id)
        (layer / ".made").touch()
        return self._mounted(layer, roots, volumes)

    def unmount(self) -> None:
        """Unmounts whatever is mounted of the containers; no error when there is nothing."""
        for target in self.targets():
            unmount(target)
            with suppress(OSError):
                target.rmdir()

    def lost(self) -> list[Path]:
        """Roots that should be mounted, and are not: unmounting one takes its mount point away as well."""
        return [target for target in self.targets() if target.parent.name == "containers" and not is_mounted(target)]

    def targets(self) -> Iterator[Path]:
        """The places where something may be mounted, the roots before the volumes."""
        for kind in ("containers", "volumes"):
            if (self._machine / kind).is_dir():
                yield from sorted((self._machine / kind).iterdir())

    async def _make_volume(self, layer: Path, volume: EffectiveTempDir) -> None:
        target = self._volume(volume.name)
        target.mkdir(parents=True, exist_ok=True)
        if volume.storage == "memory":
            return mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"size={volume.size_mib}m,mode=1777")
        file = self._machine / "disks" / f"{layer.name}.volumes" / volume.name
        file.parent.mkdir(exist_ok=True)
        with file.open("wb") as blocks:
            blocks.truncate(volume.size_mib * _MIB)
        await make_filesystem(file)
        mount_filesystem(file, target)
        (target / "lost+found").rmdir()
        os.chmod(target, _OPEN_TO_ALL)

    def _mounted(
        self, layer: Path, roots: Sequence[ContainerRoot], volumes: Sequence[EffectiveTempDir]
    ) -> ContainerMounts:
        return ContainerMounts(
            machine=str(layer / "machine"),
            roots={each.name: str(self._root(each.name)) for each in roots},
            volumes={each.name: str(self._volume(each.name)) for each in volumes},
        )

    def _root(self, name: str) -> Path:
        return self._machine / "containers" / name

    def _volume(self, name: str) -> Path:
        return self._machine / "volumes" / name


# The root filesystems and shared volumes of a machine's containers on the host, below the machine's directory:
# `containers/NAME` is an overlay over the container's image, `volumes/NAME` a shared volume. What is written is in
# `layers/INSTANCE`, as of any machine, so it goes with the instance. All of it is made before the file `.made` is;
# until then it is begun anew.

_HEX = re.compile("[0-9a-f]{64}")


class HostRootfs:
    """Keeps `host_adapters.Rootfs`. `disk_mib` is the size of layers that ask for none; with 0 these have none, and
    are plain directories."""

    def __init__(self, directory: Path, images: ImageCache, disk_mib: int) -> None:
        if 0 < disk_mib < LEAST_MIB:
            raise CannotStart(f"machine_disk_mib is {disk_mib}: a machine's root filesystem needs {LEAST_MIB}")
        self._machines = directory / "machines"
        self._mounts = directory / "mounts"
        self._trash = directory / "trash"
        self._images = images
        self._disk_mib = disk_mib
        self._disks = LayerDisks(directory / "layers", disk_mib)

    async def serve(self, clock: Clock) -> None:
        """Have layers ready for the next starts."""
        await self._disks.serve(clock)

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
        if kept is not None:
            return await self._mount_kept(machine_id, kept, image, size_mib or self._disk_mib, first_id)
        target, layer = self._machines / machine_id / "rootfs", self._layers(machine_id) / instance_id
        if not (layer.exists() and is_mounted(target)):
            await self.unmount(machine_id)
            target.mkdir(parents=True, exist_ok=True)
            await self._mount_fresh(machine_id, layer, size_mib)
            lower = self._mounted(image)
            inside("imaged")
            fresh_overlay(lower, layer, target, self._trash, first_id=first_id)
        return str(target)

    async def _mount_fresh(self, machine_id: MachineId, layer: Path, size_mib: int | None) -> None:
        file, size = self._disk(machine_id, layer.name), size_mib or self._disk_mib
        for directory in (file.parent, layer.parent):
            directory.mkdir(parents=True, exist_ok=True)
        if size:
            await self._disks.mount_fresh(file, layer, size)

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
        containers, layer = self._containers(machine_id), self._layers(machine_id) / instance_id
        found = containers.find(layer, roots, volumes)
        if found is not None:
            return found
        await self.unmount(machine_id)
        await self._mount_fresh(machine_id, layer, size_mib)
        return await containers.mount(layer, roots, volumes, first_id)

    async def _mount_kept(
        self, machine_id: MachineId, kept: str, image: Digest, size_mib: int, first_id: int | None
    ) -> str:
        """What is mounted already is left alone: an instance may have it."""
        target, layer, lower = (
            self._machines / machine_id / "rootfs",
            self._layers(machine_id) / kept,
            self._mounted(image),
        )
        if not shows_layer(target, lower, layer, first_id=first_id):
            await self.unmount(machine_id, kept=kept)
            layer.parent.mkdir(parents=True, exist_ok=True)
            inside("imaged")
            if (size_mib and not (layer / "upper").exists()) or self._disk(machine_id, kept).exists():
                self._disk(machine_id, kept).parent.mkdir(exist_ok=True)
                await self._disks.mount_kept(self._disk(machine_id, kept), layer, size_mib)
                prepare_kept(lower, layer)
            inside("layered")
            kept_overlay(lower, layer, target, first_id=first_id)
        return str(target)

    async def unmount(self, machine_id: MachineId, *, kept: str | None = None) -> None:
        """Unmounts a machine's root. What the machine wrote goes to the disk before a layer is let go, and that may
        take seconds: in a thread, unless nothing is mounted."""
        names = self._layer_names(machine_id)
        if any(is_mounted(self._layers(machine_id) / name) for name in names):
            await in_thread(Pool.HOST, self._unmount, machine_id, kept, names)
        else:
            self._unmount(machine_id, kept, names)

    def _unmount(self, machine_id: MachineId, kept: str | None, names: set[str]) -> None:
        target = self._machines / machine_id / "rootfs"
        self._containers(machine_id).unmount()
        unmount(target)
        if kept is not None:
            unmount(self._layers(machine_id) / kept)
        for name in names - ({kept} if kept else set()):
            discard_layer(self._disk(machine_id, name), self._layers(machine_id) / name, target, self._trash)

    def _layer_names(self, machine_id: MachineId) -> set[str]:
        """Of which there is anything, be it only what a crash left."""
        places = (self._layers(machine_id), self._machines / machine_id / "disks")
        return {name.partition(".")[0] for place in places if place.is_dir() for name in os.listdir(place)}

    async def remove(self, machine_id: MachineId) -> None:
        """The machine's whole directory, moved away to be emptied later."""
        await self.unmount(machine_id)
        discard_overlay(self._machines / machine_id, self._machines / machine_id / "rootfs", self._trash)

    def kept(self, machine_id: MachineId, name: str) -> FilePlace:
        return FilePlace(self._disk(machine_id, name), self._layers(machine_id) / name)

    async def list(self) -> list[MachineId]:
        return [MachineId(name) for name in sorted(os.listdir(self._machines))] if self._machines.is_dir() else []

    async def forget_image(self, image: Digest) -> None:
        """Let go of an image that was removed."""
        unmount(self._mount_point(image))
        if self._mount_point(image).is_dir():
            self._mount_point(image).rmdir()

    async def sweep(self) -> None:
        """Remove what was moved away, and templates of sizes that are no longer asked for."""
        await empty_trash(self._trash)
        await self._disks.tidy()

    async def withdraw(self) -> None:
        for mount_point in self._mounts.iterdir() if self._mounts.is_dir() else ():
            unmount(mount_point)
        await self.sweep()
        self._disks.clear()

    async def visible(self) -> frozenset[MachineId]:
        targets = await in_thread(Pool.HOST, lambda: [each.target for each in mounts(self._machines)])
        roots = {MachineId(each.parent.name) for each in targets if self._is_rootfs(each)}
        contained = {MachineId(each.parent.parent.name) for each in targets if self._is_of_container(each)}
        return frozenset(roots | {each for each in contained if not self._containers(each).lost()})

    async def reveal(self, machine_id: MachineId, pid: int) -> None:
        """Shows the mounted roots again, in one go, so that no step of a run comes in between. What is shown must be
        the overlay that was mounted here: a process id may be another's by now."""
        of_containers = {each: container_root(each.name) for each in self._containers(machine_id).lost()}
        lost = of_containers or {self._machines / machine_id / "rootfs": "/"}
        for target, path in lost.items():
            remount_root(pid, target, path)
            if not any(is_layer_of(each, self._layers(machine_id)) for each in mounts(target)):
                unmount(target)
                raise WrongState(f"process {pid} does not live in the root filesystem of machine {machine_id}")

    async def strays(self) -> tuple[str, ...]:
        return await in_thread(Pool.HOST, self._find_strays)

    def _find_strays(self) -> tuple[str, ...]:
        """In a machine's directory only its layer and root filesystem are mounted, or those of its containers and what
        they share; of images only those that are on the shelf."""
        mounted = mounts()
        targets, kinds = {each.target for each in mounted}, (self._is_rootfs, self._is_layer, self._is_of_container)
        ours = {each for each in targets if any(is_one(each) for is_one in kinds)}
        found = {each for each in targets - ours if self._machines in each.parents}
        found |= {each for each in targets if self._mounts in each.parents and not self._is_image(each)}
        used = {each.source for each in mounted}
        loose = (device for device, _ in loops(self._images.root) if device not in used)
        return (*sorted(map(str, found)), *loose)

    async def clear(self, stray: str) -> None:
        path = Path(stray)
        if path.is_relative_to("/dev"):
            return await in_thread(Pool.HOST, detach_loop, stray)
        assert path.is_relative_to(self._machines) or path.is_relative_to(self._mounts)
        await in_thread(Pool.HOST, unmount, path)
        if path.parent == self._mounts:
            _remove_empty(path)

    def _is_rootfs(self, target: Path) -> bool:
        return target.name == "rootfs" and target.parent.parent == self._machines

    def _is_layer(self, target: Path) -> bool:
        return target.parent.name == "layers" and target.parent.parent.parent == self._machines

    def _is_of_container(self, target: Path) -> bool:
        return target.parent.name in ("containers", "volumes") and target.parent.parent.parent == self._machines

    def _is_image(self, target: Path) -> bool:
        whole = target.parent == self._mounts and _HEX.fullmatch(target.name)
        return bool(whole) and self._images.find(f"sha256:{target.name}") is not None

    def _mounted(self, image: Digest) -> Path:
        target = self._mount_point(image)
        if not is_mounted(target):
            target.mkdir(parents=True, exist_ok=True)
            mount_image(self._images.block_path(image), target)
        return target

    def _mount_point(self, image: Digest) -> Path:
        return self._mounts / image.removeprefix("sha256:")

    def _containers(self, machine_id: MachineId) -> ContainerRoots:
        return ContainerRoots(self._machines / machine_id, self._trash, self._mounted)

    def _layers(self, machine_id: MachineId) -> Path:
        return self._machines / machine_id / "layers"

    def _disk(self, machine_id: MachineId, name: str) -> Path:
        return self._machines / machine_id / "disks" / name


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
