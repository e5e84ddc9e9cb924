"""Facts about building: the block image holds the merged tree, and a failure leaves nothing."""

import gzip
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.errors import NoRoom, Unavailable
from hawker.image.block_image import Staging, StagingPlace, build_block, measure, packs
from hawker.image.failure import BadLayer
from hawker.image.limits import BlockChoice, ImageLimits
from hawker.image.manifest import Compression
from hawker.image.tree import FileMeta, FileTree, TreeDirectory, TreeFile
from tests.fixtures.parts import directory, entry, sha256, tar
from tests.image.layers import blobs

pytestmark = [pytest.mark.anyio, pytest.mark.root]


class OnDisk(Staging):
    """As on a host without shared memory."""

    def places(self, most: int, *, memory: bool = True) -> Iterator[StagingPlace]:
        yield StagingPlace(self.disk, most)


@contextmanager
def mounted(block: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-o", "ro,loop", block, at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def staged_in(folder: Path) -> list[Path]:
    """What is left of the areas of a test, in memory and on disk."""
    places = Staging(folder / "staging").places(1)
    return [left for place in places for left in place.directory.glob(f"{place.prefix}*")]


def staging_in(folder: Path, kind: type[Staging] = Staging) -> Staging:
    made = kind(folder / "staging", Path("/dev/shm"))
    made.clear()
    return made


_LAYERS = [
    tar(directory("d"), (entry("d/tool", mode=0o4755, uid=7, gid=8), b"tool"), ("gone", b"")),
    tar((".wh.gone", b""), ("new", b"new")),
]


@pytest.mark.parametrize("kind", [BlockChoice.EROFS, BlockChoice.EXT4])
@pytest.mark.parametrize("where", [Staging, OnDisk])
async def test_block_image_mounts_and_holds_the_merged_tree(
    tmp_path: Path, kind: BlockChoice, where: type[Staging]
) -> None:
    target, staging = tmp_path / "block", staging_in(tmp_path, where)
    await build_block(blobs(tmp_path / "blobs", *_LAYERS), target, kind, staging, ImageLimits())
    with mounted(target, tmp_path / "mnt") as root:
        assert sorted(set(os.listdir(root)) - {"lost+found"}) == ["d", "new"]
        info = (root / "d/tool").stat()
        assert (info.st_mode & 0o7777, info.st_uid, info.st_gid) == (0o4755, 7, 8)
        assert (root / "d/tool").read_bytes() == b"tool"
    assert staged_in(tmp_path) == []


@pytest.mark.parametrize(("content", "saves"), [(b"text " * 400_000, True), (os.urandom(2_000_000), False)])
async def test_content_is_packed_where_its_makers_saved_something(tmp_path: Path, content: bytes, saves: bool) -> None:
    [plain] = blobs(tmp_path / "blobs", tar(("file", content)))
    layer = replace(plain, compression=Compression.GZIP)
    layer.path.write_bytes(gzip.compress(layer.path.read_bytes()))
    target = tmp_path / "block"
    await build_block([layer], target, BlockChoice.EROFS, staging_in(tmp_path), ImageLimits())
    assert packs([layer], len(content)) is saves and packs([layer, plain], len(content))
    assert (target.stat().st_size < len(content)) is saves
    with mounted(target, tmp_path / "mnt") as root:
        assert (root / "file").read_bytes() == content


async def test_bad_layer_leaves_nothing(tmp_path: Path) -> None:
    staging = staging_in(tmp_path)
    bad = tar(("fine", b"x" * 5000), ("../evil", b""))
    with pytest.raises(BadLayer, match=sha256(bad)):
        await build_block(blobs(tmp_path / "blobs", bad), tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())
    assert sorted(os.listdir(tmp_path)) == ["blobs", "staging"]
    assert staged_in(tmp_path) == []


async def test_refused_attribute_names_its_layer(tmp_path: Path) -> None:
    bad = tar(entry("f", pax_headers={"SCHILY.xattr.security.capability": "nonsense"}))
    with pytest.raises(BadLayer, match=rf"layer {sha256(bad)}: Invalid argument \(entry 'f'\)"):
        await build_block(
            blobs(tmp_path / "blobs", *_LAYERS, bad),
            tmp_path / "block",
            BlockChoice.EROFS,
            staging_in(tmp_path),
            ImageLimits(),
        )


async def test_full_disk_while_staging_is_no_room(tmp_path: Path, small_disk: Path) -> None:
    layers = blobs(tmp_path / "blobs", tar(("big", os.urandom(20 << 20))))
    staging = staging_in(small_disk, OnDisk)
    with pytest.raises(NoRoom, match="while unpacking an image"):
        await build_block(layers, tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())
    assert os.listdir(staging.disk) == []


async def test_full_disk_while_making_the_block_is_no_room(tmp_path: Path, small_disk: Path) -> None:
    layers = blobs(tmp_path / "blobs", tar(("big", os.urandom(20 << 20))))
    with pytest.raises(NoRoom, match="while making the block image"):
        await build_block(layers, small_disk / "block", BlockChoice.EROFS, staging_in(tmp_path), ImageLimits())
    assert os.listdir(small_disk) == []


async def test_image_too_large_for_memory_is_staged_on_disk(tmp_path: Path) -> None:
    class Tight(Staging):
        def places(self, most: int, *, memory: bool = True) -> Iterator[StagingPlace]:
            [shared, disk] = super().places(most, memory=memory)
            yield StagingPlace(shared.directory, 100, shared.prefix)
            yield disk

    staging = staging_in(tmp_path, Tight)
    layers = blobs(tmp_path / "blobs", tar(("big", bytes(5000))))
    await build_block(layers, tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())
    assert (tmp_path / "block").exists()


async def test_attribute_that_memory_cannot_hold_goes_to_disk(tmp_path: Path, bare_filesystem: Path) -> None:
    class Bare(Staging):
        def places(self, most: int, *, memory: bool = True) -> Iterator[StagingPlace]:
            yield StagingPlace(bare_filesystem, most)
            yield StagingPlace(self.disk, most)

    staging = staging_in(tmp_path, Bare)
    layers = blobs(tmp_path / "blobs", tar(entry("f", pax_headers={"SCHILY.xattr.user.a": "b"})))
    await build_block(layers, tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())
    with mounted(tmp_path / "block", tmp_path / "mnt") as root:
        assert os.getxattr(root / "f", "user.a") == b"b"


async def test_disk_that_cannot_hold_an_attribute_is_told(tmp_path: Path, bare_filesystem: Path) -> None:
    staging = staging_in(bare_filesystem, OnDisk)
    layers = blobs(tmp_path / "blobs", tar(entry("f", pax_headers={"SCHILY.xattr.user.a": "b"})))
    with pytest.raises(Unavailable, match=r"data directory cannot hold the extended attribute user\.a"):
        await build_block(layers, tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())


async def test_cancelled_build_stops_soon_and_leaves_nothing(tmp_path: Path) -> None:
    staging = staging_in(tmp_path)
    many = tar(*[(str(number), b"x") for number in range(20_000)])
    layers = blobs(tmp_path / "blobs", many)
    with anyio.fail_after(60), anyio.move_on_after(0.05) as scope:
        await build_block(layers, tmp_path / "block", BlockChoice.EROFS, staging, ImageLimits())
    assert scope.cancelled_caught
    assert sorted(os.listdir(tmp_path)) == ["blobs", "staging"]
    assert staged_in(tmp_path) == []


def test_tree_is_measured_for_the_tools() -> None:
    tree = FileTree(ImageLimits())
    tree.add(0, b"d", TreeDirectory(FileMeta(mode=0o755, mtime_ns=5)))
    tree.add(0, b"d/a", TreeFile(FileMeta(mode=0o644, mtime_ns=7 * 10**9 + 1), 1, 100))
    tree.add(0, b"b", TreeFile(FileMeta(mode=0o644), 2, 50))
    found = measure(tree)
    assert (found.content_bytes, found.files, found.newest_s) == (150, 4, 8)
