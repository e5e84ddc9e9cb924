"""From verified layers to the block image: stage the tree, make the file, put it in its place durably."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio.from_thread

from hawker.errors import HawkerError, Unavailable
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.image.blobs import remove_file, sync
from hawker.image.block import make_block
from hawker.image.failure import FULL, BadLayer, disk_room, no_room
from hawker.image.limits import BlockChoice, ImageLimits
from hawker.image.manifest import Compression
from hawker.image.progress import PullStage, PullSteps, Report, silent
from hawker.image.rootfs import NoXattrs, RefusedNode, write_tree
from hawker.image.staging import Staging, StagingPlace, area
from hawker.image.tree import FileTree, TreeDirectory, TreeFile
from hawker.image.unpack import LayerBlob, PoolFull, Unpacker
from hawker.value_object import ValueObject

_LOOK_S = 0.25
_WORTH = 2 / 3  # of the bytes that were there before


class Staged(ValueObject, frozen=True):
    """What is in a staged tree, for tools that must know the size beforehand."""

    content_bytes: int
    files: int
    newest_s: int


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
