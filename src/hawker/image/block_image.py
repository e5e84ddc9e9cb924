"""The block images that are here: one file per image digest, flat and read-only, made once of verified layers.

It is EROFS, with lz4 where that saves something, or ext4 for kernels without EROFS. The same tree gives the same file
as far as the tools allow. The tree is staged in memory (tmpfs) if there is room, else in the data directory, in an area
of mode 0700 of this user: set-id programs are in it, and no user of the host may reach them. Areas that a crash left
behind are removed by `clear`. A file is named when it is whole, and is put in its place durably.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.from_thread

from hawker.errors import CannotStart, HawkerError, Unavailable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.blobs import remove_file, sync
from hawker.image.failure import FULL, BadLayer, disk_room, no_room
from hawker.image.limits import MIB, BlockChoice, ImageLimits
from hawker.image.manifest import Compression
from hawker.image.progress import PullStage, PullSteps, Report, silent
from hawker.image.reference import hex_of
from hawker.image.tree import FileTree, NoXattrs, RefusedNode, TreeDirectory, TreeFile, write_tree
from hawker.image.unpack import LayerBlob, PoolFull, Unpacker
from hawker.value_object import ValueObject

_UUID = "6861776b-6572-4000-8000-000000000000"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_EXT4_FEATURES = "^has_journal,^resize_inode,^metadata_csum,^huge_file"
_INODE_BYTES = 256
_TOOL_S = 900.0


def host_choice(choice: BlockChoice) -> BlockChoice:
    """The choice for this host, with AUTO as what it means here. Raises `CannotStart` when the tool for it is
    missing."""
    if choice is BlockChoice.AUTO:
        choice = _best() if os.geteuid() == 0 else BlockChoice.NONE
    tool = {BlockChoice.EROFS: "mkfs.erofs", BlockChoice.EXT4: "mke2fs"}.get(choice)
    if tool and not _find(tool):
        package = "erofs-utils" if choice is BlockChoice.EROFS else "e2fsprogs"
        raise CannotStart(f"{tool} is missing: apt-get install {package}")
    return choice


def _best() -> BlockChoice:
    return BlockChoice.EROFS if kernel_has("erofs") else BlockChoice.EXT4


def kernel_has(filesystem: str) -> bool:
    """Built in, loaded, or there as a module that a mount would load."""
    if f"\t{filesystem}\n" in Path("/proc/filesystems").read_text():
        return True
    modules = Path("/lib/modules") / os.uname().release
    return any(
        f"/{filesystem}.ko" in (modules / listed).read_text()
        for listed in ("modules.dep", "modules.builtin")
        if (modules / listed).exists()
    )


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


async def make_block(
    kind: BlockChoice,
    tree: Path,
    target: Path,
    *,
    newest_s: int,
    content_bytes: int,
    files: int,
    packs: bool = True,
) -> None:
    """Write `target` from the directory `tree`: `content_bytes` in `files` inodes, the newest time in it `newest_s`.
    `packs` is whether packing the content would save anything. Raises `NoRoom` for a full disk, `Unavailable` when the
    tool fails."""
    erofs = kind is BlockChoice.EROFS
    command = _erofs(tree, target, packs=packs) if erofs else _ext4(tree, target, content_bytes, files)
    tool = _find(command[0])
    assert tool is not None, "host_choice has found it"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(newest_s), "E2FSPROGS_FAKE_TIME": str(max(1, newest_s))}
    try:
        with anyio.fail_after(_TOOL_S):
            result = await anyio.run_process(
                [tool, *command[1:]], check=False, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
    except TimeoutError as error:
        raise Unavailable(f"{command[0]} did not end within {_TOOL_S:.0f} s") from error
    if result.returncode != 0:
        raise _failure(command[0], result.stdout.decode(errors="replace"), target)


def _erofs(tree: Path, target: Path, *, packs: bool) -> list[str]:
    return ["mkfs.erofs", "--quiet", *(["-zlz4"] if packs else []), "-U", _UUID, str(target), str(tree)]


def _ext4(tree: Path, target: Path, content_bytes: int, files: int) -> list[str]:
    """The size must be said beforehand: content in whole blocks, inodes, and a margin for directories."""
    size_kib = (content_bytes * 21 // 20 + files * (4096 + _INODE_BYTES) + 16 * MIB) // 1024
    options = ["-O", _EXT4_FEATURES, "-m", "0", "-N", str(files + 64), "-I", str(_INODE_BYTES), "-U", _UUID]
    seed = ["-E", f"hash_seed={_UUID},lazy_itable_init=1,root_owner=0:0"]
    return [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "4096",
        *options,
        *seed,
        "-d",
        str(tree),
        str(target),
        f"{size_kib}k",
    ]


def _failure(tool: str, output: str, target: Path) -> Exception:
    free = os.statvfs(target.parent)
    if "No space left" in output or free.f_bavail * free.f_frsize < MIB:
        return no_room("making the block image", 0)
    last = output.strip().splitlines()[-1:] or ["no output"]
    return Unavailable(f"{tool} failed: {last[0][:300]}")


_SHARED_MEMORY = Path("/dev/shm")
_TMPFS_MAGICS = ("tmpfs", "ramfs")
_MEMORY_SHARE = 4  # a quarter of what is free


class StagingPlace(ValueObject, frozen=True):
    """`budget` is how many bytes of content may be staged there; `prefix` is what names of areas there begin with."""

    directory: Path
    budget: int
    prefix: str = "area-"


def mark_of(disk: Path) -> str:
    """The mark that the names of a cache's areas in shared memory bear."""
    return hashlib.sha256(os.fsencode(disk.absolute())).hexdigest()[:16]


class Staging:
    """The places of one image cache. `tmp` names a tmpfs to use; without it, shared memory is used where it is one."""

    def __init__(self, disk: Path, tmp: Path | None = None) -> None:
        self.disk = disk
        self._memory = tmp or _SHARED_MEMORY
        self._prefix = f"hawker-{os.geteuid()}-{mark_of(disk)}-"

    def places(self, most: int, *, memory: bool = True) -> Iterator[StagingPlace]:
        """The best first. The last one takes all that is allowed, `most`. Without `memory` it is the only one: for what
        is staged as long as somebody's download takes."""
        room = self._memory_room() if memory else 0
        if room and os.access(self._memory, os.W_OK | os.X_OK):
            yield StagingPlace(self._memory, min(room, most), self._prefix)
        yield StagingPlace(self.disk, most)

    def clear(self) -> None:
        """Remove all areas. Only while nothing is being staged. Shared memory is open to all users, so what bears our
        prefix there may be another's, and is left alone."""
        for directory in (*self._memory.glob(f"{self._prefix}*"), self.disk):
            if _is_own(directory):
                shutil.rmtree(directory, ignore_errors=True)
        self.disk.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _memory_room(self) -> int:
        if _filesystem_of(self._memory) not in _TMPFS_MAGICS:
            return 0
        found = os.statvfs(self._memory)
        return min(found.f_bavail * found.f_frsize // 2, available_memory() // _MEMORY_SHARE)


@asynccontextmanager
async def area(parent: Path, prefix: str = "area-") -> AsyncIterator[Path]:
    """A fresh directory that is gone afterwards, whatever is in it then."""
    path = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    try:
        yield path
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.IMAGES, lambda: shutil.rmtree(path, ignore_errors=True))


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _filesystem_of(path: Path) -> str:
    """The type of the filesystem that is mounted nearest above `path`."""
    best, kind = "", ""
    resolved = str(path.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, fstype = line.split(" ")[1:3]
        above = point == "/" or resolved == point or resolved.startswith(point + "/")
        if above and len(point) >= len(best):
            best, kind = point, fstype
    return kind


def available_memory() -> int:
    """Bytes that can be taken without swapping, as the kernel estimates."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


_LOOK_S = 0.25
_WORTH = 2 / 3  # of the bytes that were there before


class Staged(ValueObject, frozen=True):
    """The measure of a staged tree, for tools that must know the size beforehand."""

    content_bytes: int
    """The bytes of all regular files, holes counted; metadata is not."""
    files: int
    """The number of inodes, directories counted."""
    newest_s: int
    """Unix seconds: the block image is made as if at this moment, so it is the same each time."""


Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[bool]]
"""Waits until what was unpacked may become a block image, and says whether anybody needs that still."""


@asynccontextmanager
async def at_once() -> AsyncIterator[bool]:
    yield True


async def build_block(
    layers: Sequence[LayerBlob],
    target: Path,
    kind: BlockChoice,
    staging: Staging,
    limits: ImageLimits,
    report: Report = silent,
    turn: Turn = at_once,
) -> None:
    """Make `target`, and report how far it is: unpack the layers, and then, in `turn`, make the file, unless that says
    that nobody needs it any more. Raises `BadLayer`, `NoRoom`, `Unavailable`, `BlobLost`; nothing is left behind
    then."""
    for place in staging.places(limits.max_image_bytes, memory=turn is at_once):
        try:
            return await _build_at(place, layers, target, kind, limits, report, turn)
        except (PoolFull, NoXattrs) as error:
            reason = error
    if isinstance(reason, PoolFull):
        raise no_room("unpacking an image", 0) from reason
    raise Unavailable(f"this node's data directory cannot hold the extended attribute {reason}") from reason


async def _build_at(
    place: StagingPlace,
    layers: Sequence[LayerBlob],
    target: Path,
    kind: BlockChoice,
    limits: ImageLimits,
    report: Report,
    turn: Turn,
) -> None:
    async with area(place.directory, place.prefix) as directory:
        staged = await in_thread(Pool.IMAGES, _stage, layers, directory, place.budget, limits, report)
        inside("staged")
        async with turn() as wanted:
            if wanted:
                await _make(staged, layers, directory, target, kind, report)


async def _make(
    staged: Staged, layers: Sequence[LayerBlob], directory: Path, target: Path, kind: BlockChoice, report: Report
) -> None:
    fresh = target.with_name(f"{target.name}.tmp")
    with disk_room("making the block image"):
        try:
            making = make_block(
                kind,
                directory / "root",
                fresh,
                newest_s=staged.newest_s,
                content_bytes=staged.content_bytes,
                files=staged.files,
                packs=packs(layers, staged.content_bytes),
            )
            await _watched(fresh, PullSteps(report, PullStage.BUILDING, staged.content_bytes), making)
            inside("made")
            await in_thread(Pool.IMAGES, _keep, fresh, target)
            inside("placed")
        finally:
            remove_file(fresh)


def packs(layers: Sequence[LayerBlob], content_bytes: int) -> bool:
    """Whether packing `content_bytes` of files again would save disk that is worth its time, judged by what it saved
    where the layers were made. lz4 in blocks saves less than they did, and where they saved next to nothing it takes
    several times as long as writing the files. Of layers that nobody packed, nobody knows."""
    if any(layer.compression is Compression.NONE for layer in layers):
        return True
    return sum(layer.packed_bytes for layer in layers) < content_bytes * _WORTH


async def _watched(file: Path, steps: PullSteps, making: Awaitable[None]) -> None:
    """Wait for `making`, and report meanwhile how large its file is: the tools say nothing. What is there goes to the
    disk meanwhile, so that little is left to wait for at the end. Raises what it raises."""
    failures: list[HawkerError | OSError] = []

    async def watch() -> None:
        while True:
            with anyio.move_on_after(_LOOK_S):
                await anyio.sleep_forever()
            steps.at(await in_thread(Pool.IMAGES, _written, file))

    steps.at(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            await making
        except (HawkerError, OSError) as error:
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


def _written(file: Path) -> int:
    """How many of its bytes are on the disk now; 0 for a file that is not there yet. An error is for who writes it."""
    with suppress(OSError):
        sync(file)
        return file.stat().st_blocks * 512
    return 0


def _stage(layers: Sequence[LayerBlob], directory: Path, budget: int, limits: ImageLimits, report: Report) -> Staged:
    """In a thread. Gives up soon after the waiting task is cancelled."""
    check = anyio.from_thread.check_cancelled
    pool = directory / "pool"
    packed = sum(layer.packed_bytes for layer in layers)
    steps = PullSteps(lambda progress: anyio.from_thread.run_sync(report, progress), PullStage.UNPACKING, packed)
    steps.at(0)
    try:
        pool.mkdir(mode=0o700)
        tree = Unpacker(pool, budget, limits, check, steps.at).unpack(layers)
        write_tree(tree, pool, directory / "root", check)
    except RefusedNode as error:
        raise BadLayer(layers[error.layer].digest, str(error), error.entry) from error
    except OSError as error:
        if error.errno in FULL:
            raise PoolFull from error
        raise
    return measure(tree)


def _keep(fresh: Path, target: Path) -> None:
    sync(fresh)
    os.rename(fresh, target)
    sync(target.parent)


def measure(tree: FileTree) -> Staged:
    content_bytes, files, newest_ns = 0, 1, tree.root.meta.mtime_ns
    ahead = [tree.root]
    while ahead:
        for node, _ in ahead.pop().children.values():
            files += 1
            newest_ns = max(newest_ns, node.meta.mtime_ns)
            if isinstance(node, TreeDirectory):
                ahead.append(node)
            elif isinstance(node, TreeFile):
                content_bytes += node.size
    return Staged(content_bytes, files, -(-newest_ns // 10**9))


_TYPES = (BlockChoice.EROFS.value, BlockChoice.EXT4.value)


class Blocks:
    def __init__(self, root: Path, choice: BlockChoice, staging: Staging, limits: ImageLimits) -> None:
        self._folder = root / "rootfs"
        self._choice = choice
        self._staging = staging
        self._limits = limits

    def open(self) -> None:
        """Settle the filesystem and drop what a crash left half made. Raises `CannotStart` when a tool is missing."""
        self._choice = host_choice(self._choice)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in self._folder.glob("*.tmp"):
            remove_file(stale)

    @property
    def wanted(self) -> bool:
        """Whether this node makes block images at all."""
        return self._choice is not BlockChoice.NONE

    def find(self, digest: Digest) -> Path | None:
        """The block image of a manifest, in whichever filesystem was right when it was made; None when there is
        none."""
        whole = f"{self._folder}/{hex_of(digest)}"
        found = next((kind for kind in _TYPES if os.access(f"{whole}.{kind}", os.F_OK)), None)
        return None if found is None else Path(f"{whole}.{found}")

    async def make(
        self, digest: Digest, layers: Sequence[LayerBlob], report: Report = silent, turn: Turn = at_once
    ) -> Path:
        """Makes the block image of a manifest. Raises what `build_block` raises."""
        target = self._folder / f"{hex_of(digest)}.{self._choice.value}"
        await build_block(layers, target, self._choice, self._staging, self._limits, report, turn)
        return target

    def all(self) -> list[tuple[Digest, Path]]:
        return [(Digest(f"sha256:{file.stem}"), file) for file in self._folder.iterdir() if file.suffix[1:] in _TYPES]

    def disk_bytes(self) -> int:
        total = 0
        for _, file in self.all():
            with suppress(FileNotFoundError):  # a prune removes it
                total += file.stat().st_blocks * 512
        return total
