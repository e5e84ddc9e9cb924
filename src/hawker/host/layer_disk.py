"""A machine's writable layer with a size: a sparse ext4 in a file, mounted where the layer is. A machine that writes
its layer full gets ENOSPC from a filesystem of its own, and nobody else has less room for it, nor fewer inodes.

A layer that goes with its instance has no journal and is never synced: after a crash of the host nobody reads it. One
that is kept has a journal. Why no project quotas: root in a machine may give its files another project (the ioctl
FS_IOC_FSSETXATTR passes overlay) unless it has a user namespace, and few hosts mount their filesystem with them.
"""

import os
import tempfile
from pathlib import Path

import anyio

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.host import ext4, sparse
from hawker.host.block import attach_loop
from hawker.host.ext4 import Ext4Templates, read_superblock
from hawker.host.idmap import attach_tree
from hawker.host.mount import NODEV, detached_mount, discard, discard_overlay, is_mounted, mount, unmount
from hawker.log import bind

_MIB = 1 << 20
_OPTIONS = {"nobarrier": None, "noinit_itable": None, "errors": "remount-ro"}
_DISCARDED = ",".join(name if value is None else f"{name}={value}" for name, value in _OPTIONS.items())
_READY_MAX = 8
_REFILLED_AFTER_S = 0.05

_log = bind("hawker.layers")


class LayerDisks:
    """The writable layers of one node's machines. `file` holds the filesystem that is mounted at the directory `layer`;
    both are the caller's. While `serve` runs, layers of `usual_mib` are made ahead of time."""

    def __init__(self, templates: Path, usual_mib: int = 0) -> None:
        self._templates = Ext4Templates(templates)
        self._usual_mib = usual_mib
        self._ready = ReadyLayers(self._templates)

    async def serve(self, clock: Clock) -> None:
        await self._ready.serve(self._usual_mib, clock)

    async def mount_fresh(self, file: Path, layer: Path, size_mib: int) -> None:
        """Mount an empty layer of this size, for as long as an instance lives. Nothing may be at `file` or `layer`
        before. Raises `OSError`."""
        if size_mib == self._usual_mib and self._ready.take(file, layer):
            return
        template = await self._templates.of(size_mib, journal=False)
        await in_thread(Pool.HOST, _mount_fresh, template, file, layer)

    async def mount_kept(self, file: Path, layer: Path, size_mib: int) -> None:
        """Mount the layer in `file`, grown to at least this size, or an empty one if there is no file. No change where
        it is mounted. Raises `BadRequest` for a damaged filesystem, `OSError`."""
        if not await in_thread(Pool.HOST, file.exists):
            draft = file.with_name(f"{file.name}.draft")
            await sparse.draft(await self._templates.of(size_mib), draft)
            await sparse.publish(draft, file)
        if is_mounted(layer):
            return
        if ext4.device_of(file) is None:
            await ext4.check_filesystem(file)
            if _enlarge(file, size_mib * _MIB):
                await ext4.grow_unmounted(file)
        await in_thread(Pool.HOST, _mount_kept, file, layer)

    async def tidy(self) -> None:
        await self._templates.tidy()

    @property
    def ready(self) -> int:
        """The number of layers that were made ahead of time and are not used yet."""
        return len(self._ready)

    def clear(self) -> None:
        self._ready.clear()
        self._templates.clear()


class ReadyLayers:
    """Fresh layers that are mounted, but nowhere: a start gives a layer a name and a place. As many are kept as were
    ever missed at once since the node began, at most 8. Descriptors alone hold their mounts, so these end with the
    process; the files are then what a crash left beside the templates."""

    def __init__(self, templates: Ext4Templates) -> None:
        self._templates = templates
        self._ready: list[tuple[Path, int]] = []
        self._goal = 0
        self._taken = anyio.Event()

    def take(self, file: Path, layer: Path) -> bool:
        """Mount one of the ready layers. Returns whether there was one. Raises `OSError`."""
        self._taken.set()
        if not self._ready:
            self._goal = min(self._goal + 1, _READY_MAX)
            return False
        draft, mounted = self._ready.pop()
        try:
            draft.rename(file)
            layer.mkdir(parents=True)
            attach_tree(mounted, layer)
        finally:
            os.close(mounted)
            self._templates.let_go(draft)
        return True

    async def serve(self, size_mib: int, clock: Clock) -> None:
        """Make the next layers, a moment after some were taken: the starts that took them come first."""
        while True:
            await self._taken.wait()
            await clock.sleep(_REFILLED_AFTER_S)
            self._taken = anyio.Event()
            try:
                while len(self._ready) < self._goal:
                    template = await self._templates.of(size_mib, journal=False)
                    self._ready.append(await in_thread(Pool.HOST, self._make, template))
            except (HawkerError, OSError) as error:  # a full disk: whoever starts next hears of it
                _log.warning("no layer made ahead of time", extra={"reason": str(error)})

    def _make(self, template: Path) -> tuple[Path, int]:
        draft = self._templates.draft()
        try:
            sparse.draft_here(template, draft)
            with attach_loop(draft, writable=True) as device:
                mounted = detached_mount(device, "ext4", options=_OPTIONS)
            try:
                _make_places(mounted)
            except BaseException:
                os.close(mounted)
                raise
            return draft, mounted
        except BaseException:
            draft.unlink(missing_ok=True)
            self._templates.let_go(draft)
            raise

    def __len__(self) -> int:
        return len(self._ready)

    def clear(self) -> None:
        """Let go of all ready layers, for a node that is not coming back."""
        self._goal = 0
        for draft, mounted in self._ready:
            os.close(mounted)
            draft.unlink(missing_ok=True)
            self._templates.let_go(draft)
        self._ready.clear()


def _make_places(layer: int) -> None:
    """An overlay's two directories. The first one in an ext4 reads from its disk, which a start need not await."""
    for name in ("upper", "work"):
        os.mkdir(name, dir_fd=layer)


def _mount_fresh(template: Path, file: Path, layer: Path) -> None:
    sparse.draft_here(template, file)
    layer.mkdir(parents=True)
    with attach_loop(file, writable=True) as device:
        mount(device, layer, "ext4", NODEV, _DISCARDED)


def _enlarge(file: Path, size_bytes: int) -> bool:
    """Whether its filesystem has to grow: also where a crash came in between."""
    if file.stat().st_size < size_bytes:
        os.truncate(file, size_bytes)
    found = read_superblock(file)
    return found is not None and found.bytes < size_bytes


def _mount_kept(file: Path, layer: Path) -> None:
    layer.mkdir(parents=True, exist_ok=True)
    ext4.mount_filesystem(file, layer)


def prepare_kept(lower: Path, layer: Path) -> None:
    """Make the directories of an overlay over `lower` in a fresh layer, whole or not at all."""
    (layer / "work").mkdir(exist_ok=True)
    if not (layer / "upper").exists():
        made, root = Path(tempfile.mkdtemp(prefix="new-", dir=layer)), lower.stat()
        os.chmod(made, root.st_mode & 0o7777)
        os.chown(made, root.st_uid, root.st_gid)
        made.rename(layer / "upper")


def discard_layer(file: Path, layer: Path, target: Path, trash: Path) -> None:
    """Unmount overlay and layer, and move the layer, its `file` and the files beside it with an ending to `trash`; no
    error when none is there."""
    unmount(target)
    unmount(layer)
    discard_overlay(layer, target, trash)
    for path in (file, *file.parent.glob(f"{file.name}.*")):
        discard(path, trash)
