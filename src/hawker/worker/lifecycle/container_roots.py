"""The root filesystems and shared volumes of a machine's containers on the host, below the machine's directory:
`containers/NAME` is an overlay over the container's image, `volumes/NAME` a shared volume. What is written is in
`layers/INSTANCE`, as of any machine, so it goes with the instance.

All of it is made before the file `.made` is; until then it is begun anew.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hawker.config.effective_containers import TempDir
from hawker.failpoint import inside
from hawker.host.ext4 import make_filesystem, mount_filesystem
from hawker.host.mount import NODEV, NOSUID, fresh_overlay, is_mounted, mount, unmount
from hawker.ids import Digest
from hawker.worker.lifecycle.deps import ContainerMounts, ContainerRoot

_OPEN_TO_ALL = 0o1777
_MIB = 1 << 20


class ContainerRoots:
    """Of one machine. `lower` mounts an image and says where."""

    def __init__(self, machine: Path, trash: Path, lower: Callable[[Digest], Path]) -> None:
        self._machine = machine
        self._trash = trash
        self._lower = lower

    def find(self, layer: Path, roots: Sequence[ContainerRoot], volumes: Sequence[TempDir]) -> ContainerMounts | None:
        """What is there of this instance, if it is whole."""
        targets = [*map(self._root, (each.name for each in roots)), *map(self._volume, (each.name for each in volumes))]
        if not (layer / ".made").exists() or not all(map(is_mounted, targets)):
            return None
        return self._mounted(layer, roots, volumes)

    async def mount(self, layer: Path, roots: Sequence[ContainerRoot], volumes: Sequence[TempDir]) -> ContainerMounts:
        """Make all of it, where nothing of it is."""
        (layer / "machine").mkdir(parents=True, exist_ok=True)
        os.chmod(layer / "machine", 0o755)
        for volume in volumes:
            await self._make_volume(layer, volume)
        for root in roots:
            lower = self._lower(root.image)
            inside("imaged")
            fresh_overlay(lower, layer / "roots" / root.name, self._root(root.name), self._trash)
        (layer / ".made").touch()
        return self._mounted(layer, roots, volumes)

    def unmount(self) -> None:
        """Whatever is mounted of the containers; no error when there is nothing."""
        for target in self.targets():
            unmount(target)
            with suppress(OSError):
                target.rmdir()

    def lost(self) -> list[Path]:
        """Roots that should be mounted, and are not: unmounting one takes its mount point away as well."""
        return [target for target in self.targets() if target.parent.name == "containers" and not is_mounted(target)]

    def targets(self) -> Iterator[Path]:
        """Where something may be mounted, the roots before the volumes."""
        for kind in ("containers", "volumes"):
            if (self._machine / kind).is_dir():
                yield from sorted((self._machine / kind).iterdir())

    async def _make_volume(self, layer: Path, volume: TempDir) -> None:
        target = self._volume(volume.name)
        target.mkdir(parents=True, exist_ok=True)
        if volume.storage == "memory":
            return mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"size={volume.size_mib}m,mode=1777")
        file = layer / "volumes" / volume.name
        file.parent.mkdir(exist_ok=True)
        with file.open("wb") as blocks:
            blocks.truncate(volume.size_mib * _MIB)
        await make_filesystem(file)
        mount_filesystem(file, target)
        (target / "lost+found").rmdir()
        os.chmod(target, _OPEN_TO_ALL)

    def _mounted(self, layer: Path, roots: Sequence[ContainerRoot], volumes: Sequence[TempDir]) -> ContainerMounts:
        return ContainerMounts(
            machine=str(layer / "machine"),
            roots={each.name: str(self._root(each.name)) for each in roots},
            volumes={each.name: str(self._volume(each.name)) for each in volumes},
        )

    def _root(self, name: str) -> Path:
        return self._machine / "containers" / name

    def _volume(self, name: str) -> Path:
        return self._machine / "volumes" / name
