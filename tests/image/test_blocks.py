"""Facts about the folder of block images."""

from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.block_image import Blocks, Staging
from hawker.image.limits import BlockChoice, ImageLimits
from tests.fixtures.parts import tar
from tests.image.layers import blobs

_A = Digest("sha256:" + "a" * 64)


def opened(root: Path, choice: BlockChoice) -> Blocks:
    staging = Staging(root / "staging")
    staging.clear()
    blocks = Blocks(root, choice, staging, ImageLimits())
    blocks.open()
    return blocks


@pytest.mark.root
@pytest.mark.anyio
@pytest.mark.parametrize("choice", [BlockChoice.EROFS, BlockChoice.EXT4])
async def test_block_is_found_under_its_digest(tmp_path: Path, choice: BlockChoice) -> None:
    blocks = opened(tmp_path, choice)
    assert blocks.wanted
    assert blocks.find(_A) is None
    made = await blocks.make(_A, blobs(tmp_path / "blobs", tar(("a", b""))))
    assert blocks.find(_A) == made
    assert made.name == f"{'a' * 64}.{choice.value}"
    assert blocks.all() == [(_A, made)]
    assert blocks.disk_bytes() > 0


def test_unfinished_block_image_is_dropped_at_boot(tmp_path: Path) -> None:
    (tmp_path / "rootfs").mkdir()
    (tmp_path / f"rootfs/{'a' * 64}.erofs.tmp").write_bytes(b"half")
    blocks = opened(tmp_path, BlockChoice.NONE)
    assert list((tmp_path / "rootfs").iterdir()) == []
    assert not blocks.wanted


def test_block_of_either_filesystem_is_found(tmp_path: Path) -> None:
    blocks = opened(tmp_path, BlockChoice.NONE)
    file = tmp_path / f"rootfs/{'a' * 64}.ext4"
    file.touch()
    assert blocks.find(_A) == file


def test_block_that_a_prune_removes_meanwhile_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = opened(tmp_path, BlockChoice.NONE)
    monkeypatch.setattr(blocks, "all", lambda: [(_A, tmp_path / f"rootfs/{'a' * 64}.ext4")])
    assert blocks.disk_bytes() == 0
