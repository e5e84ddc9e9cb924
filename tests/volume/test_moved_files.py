"""Files of volumes that move, on a real file system: holes stay holes, and a draft counts for nothing until it is
adopted.
"""

import os
from pathlib import Path

import pytest

from hawker.errors import NotFound
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange
from hawker.ids import NodeId, VolumeId
from hawker.volume.moved_blocks import blocks_in
from hawker.volume.moved_files import BlockChanges, HostMovedFiles, StoredPiece

pytestmark = pytest.mark.anyio
ONE = VolumeId("vol_0000000000000001")
SIZE = 64 << 20
PIECE = 4 << 20


def at(root: Path) -> HostMovedFiles:
    return HostMovedFiles(NodeId("0badcafe"), root, lambda volume_id: root / volume_id / "disk")


def made(root: Path, **content: bytes) -> Path:
    """A sparse file with these bytes at these MiB, as `at_3=...`."""
    file = root / ONE / "disk"
    file.parent.mkdir(parents=True)
    with file.open("wb") as opened:
        opened.truncate(SIZE)
        for place, data in content.items():
            opened.seek(int(place.removeprefix("at_")) << 20)
            opened.write(data)
    return file


async def copy(source: HostMovedFiles, target: HostMovedFiles, move: str = "01") -> None:
    await target.begin(move, SIZE, 0)
    offset = 0
    while (piece := await source.piece(ONE, offset, PIECE)) is not None:
        assert piece.offset >= offset and 0 < len(piece.data) <= PIECE
        await target.write(move, piece)
        offset = piece.offset + len(piece.data)
    await target.sync(move)


async def test_a_copy_has_the_same_content_and_digests_and_keeps_holes(tmp_path: Path) -> None:
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    file = made(tmp_path / "s", at_0=os.urandom(70_000), at_9=bytes(1 << 20), at_33=os.urandom(5 << 20))
    await copy(source, target)
    whole = [BlockRange(0, blocks_in(SIZE))]
    digests = await source.digests(ONE, whole)
    assert digests == await target.digests_of_draft("01", whole)
    assert digests.upto == SIZE // BLOCK_BYTES and len(digests.of) == 2 + 5 * 16
    assert not (tmp_path / "d" / ONE).exists()
    await target.adopt("01", ONE)
    await target.adopt("01", ONE)
    copied = tmp_path / "d" / ONE / "disk"
    assert copied.read_bytes() == file.read_bytes()
    assert copied.stat().st_blocks < file.stat().st_blocks  # zeros that were written are holes now
    assert await target.drafts() == []


async def test_blocks_of_a_draft_are_overwritten_and_zeros_become_holes(tmp_path: Path) -> None:
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    file = made(tmp_path / "s", at_0=b"a" * (3 * BLOCK_BYTES))
    await copy(source, target)
    with file.open("r+b") as opened:
        opened.seek(BLOCK_BYTES)
        opened.write(bytes(BLOCK_BYTES) + b"b" * 100)
    spans = [BlockRange(1, 2)]
    blocks = await source.blocks(ONE, spans)
    assert set(blocks) == {2}
    draft = tmp_path / "d" / ".incoming" / "01"
    before = draft.stat().st_blocks
    await target.overwrite("01", spans, blocks)
    assert draft.read_bytes() == file.read_bytes()
    assert draft.stat().st_blocks < before


async def test_nobody_knows_what_changes_in_a_file_that_is_not_mounted(tmp_path: Path) -> None:
    files = at(tmp_path)
    made(tmp_path, at_1=b"data")
    await files.watch(ONE, "first")
    assert await files.changed(ONE, "") == BlockChanges("", None)
    await files.end_watches([])
    assert await files.trim(ONE, 0) is None
    await files.settle(ONE)


async def test_a_draft_that_is_taken_up_has_nothing_beyond_what_was_on_disk(tmp_path: Path) -> None:
    target = at(tmp_path)
    await target.begin("01", SIZE, 0)
    for offset in (0, 8 << 20):
        await target.write("01", StoredPiece(offset, b"z" * 4096))
    await target.begin("01", SIZE, 4 << 20)
    draft = tmp_path / ".incoming" / "01"
    assert draft.stat().st_size == SIZE
    content = draft.read_bytes()
    assert content[:4096] == b"z" * 4096 and not any(content[4096:])


async def test_a_dropped_retired_and_forgotten_file_is_gone_in_turn(tmp_path: Path) -> None:
    files = at(tmp_path)
    file = made(tmp_path, at_1=b"data")
    assert await files.stored_bytes(ONE) > 0
    await files.flush(ONE)
    await files.begin("01", SIZE, 0)
    assert await files.drafts() == ["01"]
    await files.drop("01")
    await files.drop("01", VolumeId("vol_0000000000000002"))
    assert await files.drafts() == []
    for _ in range(2):
        await files.retire(ONE, 2)
    kept = tmp_path / ".retired" / f"{ONE}.2"
    assert kept.exists() and not file.parent.exists()
    with pytest.raises(NotFound):
        await files.piece(ONE, 0, PIECE)
    for _ in range(2):
        await files.forget(ONE, 2)
    assert not kept.exists()
