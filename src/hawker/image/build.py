"""From verified layers to the block image: stage the tree, make the file, put it in its place durably."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.from_thread
from anyio.to_thread import run_sync

from hawker.errors import Unavailable
from hawker.failpoint import inside
from hawker.image.blobs import remove_file, sync
from hawker.image.block import make_block
from hawker.image.failure import FULL, BadLayer, disk_room, no_room
from hawker.image.limits import BlockChoice, ImageLimits
from hawker.image.rootfs import NoXattrs, RefusedNode, write_tree
from hawker.image.staging import Staging, StagingPlace, area
from hawker.image.tree import FileTree, TreeDirectory, TreeFile
from hawker.image.unpack import LayerBlob, PoolFull, Unpacker


@dataclass(frozen=True, slots=True)
class Staged:
    """What is in a staged tree, for tools that must know the size beforehand."""

    content_bytes: int
    files: int
    newest_s: int


async def build_block(
    layers: Sequence[LayerBlob], target: Path, kind: BlockChoice, staging: Staging, limits: ImageLimits
) -> None:
    """Make `target`. Raises `BadLayer`, `NoRoom`, `Unavailable`; nothing is left behind then."""
    for place in staging.places(limits.max_image_bytes):
        try:
            return await _build_at(place, layers, target, kind, limits)
        except (PoolFull, NoXattrs) as error:
            reason = error
    if isinstance(reason, PoolFull):
        raise no_room("unpacking an image", 0) from reason
    raise Unavailable(f"this node's data directory cannot hold the extended attribute {reason}") from reason


async def _build_at(
    place: StagingPlace, layers: Sequence[LayerBlob], target: Path, kind: BlockChoice, limits: ImageLimits
) -> None:
    fresh = target.with_name(f"{target.name}.tmp")
    async with area(place.directory, place.prefix) as directory:
        staged = await run_sync(_stage, layers, directory, place.budget, limits)
        inside("staged")
        with disk_room("making the block image"):
            try:
                await make_block(
                    kind,
                    directory / "root",
                    fresh,
                    newest_s=staged.newest_s,
                    content_bytes=staged.content_bytes,
                    files=staged.files,
                )
                inside("made")
                await run_sync(_keep, fresh, target)
                inside("placed")
            finally:
                remove_file(fresh)


def _stage(layers: Sequence[LayerBlob], directory: Path, budget: int, limits: ImageLimits) -> Staged:
    """In a thread. Gives up soon after the waiting task is cancelled."""
    check = anyio.from_thread.check_cancelled
    pool = directory / "pool"
    try:
        pool.mkdir(mode=0o700)
        tree = Unpacker(pool, budget, limits, check).unpack(layers)
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
