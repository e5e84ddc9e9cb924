"""Facts about block images, made by the real tools."""

import hashlib
import os
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.errors import NoRoom, Unavailable
from hawker.image.block_image import host_choice, kernel_has, make_block
from hawker.image.limits import BlockChoice

pytestmark = pytest.mark.anyio

_KINDS = [BlockChoice.EROFS, BlockChoice.EXT4]
_MAGICS = {BlockChoice.EROFS: (1024, b"\xe2\xe1\xf5\xe0"), BlockChoice.EXT4: (1080, b"\x53\xef")}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "d").mkdir(parents=True)
    for number in range(200):
        (root / f"d/{number}").write_bytes(os.urandom(30_000))
    for path in [*root.rglob("*"), root]:
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return root


async def make(kind: BlockChoice, tree: Path, target: Path) -> bytes:
    await make_block(kind, tree, target, newest_s=1_600_000_000, content_bytes=6_000_000, files=203)
    return await run_sync(target.read_bytes)


@pytest.mark.parametrize("kind", _KINDS)
async def test_file_has_the_filesystem_in_it(kind: BlockChoice, tree: Path, tmp_path: Path) -> None:
    block = await make(kind, tree, tmp_path / "block")
    offset, magic = _MAGICS[kind]
    assert block[offset : offset + len(magic)] == magic


async def test_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = await make(BlockChoice.EROFS, tree, tmp_path / "one")
    second = await make(BlockChoice.EROFS, tree, tmp_path / "two")
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()


async def test_many_empty_files_fit(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    for number in range(3000):
        (root / str(number)).touch()
    await make_block(BlockChoice.EXT4, root, tmp_path / "block", newest_s=0, content_bytes=0, files=3001)
    assert (tmp_path / "block").stat().st_size < 64 << 20


@pytest.mark.parametrize("kind", _KINDS)
async def test_failing_tool_is_told_by_name(kind: BlockChoice, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(mkfs.erofs|mke2fs) failed: ."):
        await make_block(kind, tmp_path / "nope", tmp_path / "block", newest_s=0, content_bytes=0, files=1)


@pytest.mark.root
@pytest.mark.parametrize("kind", _KINDS)
async def test_full_disk_is_no_room(kind: BlockChoice, tree: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(5 << 20))
    with pytest.raises(NoRoom):
        await make_block(kind, tree, small_disk / "block", newest_s=0, content_bytes=600_000_000, files=203)


def test_choice_of_the_host_is_one_that_it_can_mount() -> None:
    choice = host_choice(BlockChoice.AUTO)
    assert choice is (BlockChoice.NONE if os.geteuid() else choice)
    assert choice in (BlockChoice.NONE, BlockChoice.EXT4) or kernel_has("erofs")
    assert host_choice(BlockChoice.NONE) is BlockChoice.NONE


def test_kernel_knows_what_it_has() -> None:
    assert not kernel_has("nofs")
