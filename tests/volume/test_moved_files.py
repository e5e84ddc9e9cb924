"""Files of volumes that move, on a real file system: holes stay holes, and a draft counts for nothing until it is
adopted.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.errors import NotFound, NotServed, Unavailable
from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, ChangedBlocks
from hawker.host.ext4 import device_of, make_filesystem, mount_filesystem
from hawker.host.mount import unmount
from hawker.host.unreadable import FileRange, UnreadableBytes, joined
from hawker.ids import NodeId, SnapshotId
from hawker.volume.host_copies import HostCopies
from hawker.volume.moved_blocks import blocks_in
from hawker.volume.moved_files import (
    BRIDGED_BYTES,
    BlockChanges,
    FilePlace,
    HostMovedFiles,
    MovedFile,
    StoredPiece,
    draft_of,
)
from tests.fixtures.dying_disk import dying_disk
from tests.fixtures.sharing_disk import KINDS, sharing_disk
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
ONE, TWO = MovedFile("vol_0000000000000001"), MovedFile("vol_0000000000000002")
ROOT = MovedFile("77424481f6cc77", "kept-3")
SNAPSHOT = MovedFile("vs_0000000000000001")
SIZE = 64 << 20
PIECE = 4 << 20


def at(root: Path) -> HostMovedFiles:
    def place_of(file: MovedFile) -> FilePlace:
        if file == SNAPSHOT:
            return FilePlace(root / "snapshots" / file.id, root / "snapshots" / "mounted")
        if file.layer:
            machine = root / "machines" / file.id
            return FilePlace(machine / "disks" / file.layer, machine / "layers" / file.layer)
        return FilePlace(root / file.id / "disk", root / file.id / "mounted")

    return HostMovedFiles(NodeId("0badcafe"), root, place_of)


def made(root: Path, **content: bytes) -> Path:
    """A sparse file with these bytes at these MiB, as `at_3=...`."""
    file = root / ONE.id / "disk"
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


async def test_a_snapshot_is_drafted_where_it_is_to_be_and_is_none_of_the_drafts_of_moves(tmp_path: Path) -> None:
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    made(tmp_path / "s", at_3=b"three")
    draft = draft_of("01", SNAPSHOT)
    await copy(source, target, draft)
    copies = HostCopies(tmp_path / "d" / "snapshots", Path, Path)
    assert await target.drafts() == [] and await copies.list() == []
    await target.adopt(draft, SNAPSHOT)
    await target.adopt(draft, SNAPSHOT)  # once more, after a crash
    assert await copies.list() == [SNAPSHOT.id]
    await copy(source, target, draft)
    await copies.drop(SnapshotId(SNAPSHOT.id))
    assert os.listdir(tmp_path / "d" / "snapshots") == []


async def test_a_copy_has_the_same_content_and_digests_and_keeps_holes(tmp_path: Path) -> None:
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    file = made(tmp_path / "s", at_0=os.urandom(70_000), at_9=bytes(1 << 20), at_33=os.urandom(5 << 20))
    await copy(source, target)
    whole = [BlockRange(0, blocks_in(SIZE))]
    digests = await source.digests(ONE, whole)
    assert digests == await target.digests_of_draft("01", whole)
    assert digests.upto == SIZE // BLOCK_BYTES and len(digests.of) == 2 + 5 * 16
    assert not (tmp_path / "d" / ONE.id).exists()
    await target.adopt("01", ONE)
    await target.adopt("01", ONE)
    copied = tmp_path / "d" / ONE.id / "disk"
    assert copied.read_bytes() == file.read_bytes()
    assert copied.stat().st_blocks < file.stat().st_blocks  # zeros that were written are holes now
    assert await target.drafts() == []


async def test_a_file_of_many_small_pieces_comes_in_few_answers_and_takes_no_more_room(tmp_path: Path) -> None:
    """As a file system of many small files is: a page, and a hole or two."""
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    file = made(tmp_path / "s")
    with file.open("r+b") as opened:
        for place in (*range(0, 4 << 20, 12 << 10), 24 << 20, (24 << 20) + BRIDGED_BYTES + 8192):
            os.pwrite(opened.fileno(), os.urandom(4096), place)
    answers, offset = list[int](), 0
    while (piece := await source.piece(ONE, offset, PIECE)) is not None:
        answers.append(piece.offset)
        offset = piece.offset + len(piece.data)
    assert answers[1:] == [24 << 20, (24 << 20) + BRIDGED_BYTES + 8192], answers
    await copy(source, target)
    draft = tmp_path / "d" / ".incoming" / "01"
    assert draft.read_bytes() == file.read_bytes() and draft.stat().st_blocks < 1.5 * file.stat().st_blocks


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


async def test_nobody_knows_what_changes_in_a_file_of_a_disk_that_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.volume.moved_files.track_on_disk", lambda *about: None)
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
    await files.drop("01", TWO)
    assert await files.drafts() == []
    for _ in range(2):
        await files.retire(ONE, 2)
    kept = tmp_path / ".retired" / f"{ONE.id}.2"
    assert kept.exists() and not file.parent.exists()
    with pytest.raises(NotFound):
        await files.piece(ONE, 0, PIECE)
    for _ in range(2):
        await files.forget(ONE, 2)
    assert not kept.exists()


async def test_a_retired_file_is_restored_as_it_was(tmp_path: Path) -> None:
    files = at(tmp_path)
    file = made(tmp_path, at_1=b"data")
    before = file.read_bytes()
    await files.retire(ONE, 2)
    for _ in range(2):
        await files.restore(ONE, 2)
    assert file.read_bytes() == before and not list((tmp_path / ".retired").iterdir())
    with pytest.raises(NotFound):
        await files.restore(TWO, 2)


def kept(root: Path, name: str = "kept-3") -> Path:
    file = root / "machines" / ROOT.id / "disks" / name
    file.parent.mkdir(parents=True)
    with file.open("wb") as opened:
        opened.truncate(SIZE)
    return file


async def test_a_kept_layer_travels_as_a_file_of_its_own_and_is_retired_under_its_machine(tmp_path: Path) -> None:
    source, target = at(tmp_path / "s"), at(tmp_path / "d")
    file, draft = kept(tmp_path / "s"), draft_of("01", ROOT)
    file.write_bytes(os.urandom(300_000))
    assert await source.size_bytes(ROOT) == 300_000 and await source.size_bytes(MovedFile(ROOT.id, "kept-4")) is None
    assert draft_of("01", ONE) == "01" and draft.partition(".")[0] == "01"
    await target.begin(draft, 300_000, 0)
    piece = await source.piece(ROOT, 0, PIECE)
    assert piece is not None
    await target.write(draft, piece)
    for _ in range(2):
        await target.adopt(draft, ROOT)
    copied = tmp_path / "d" / "machines" / ROOT.id / "disks" / "kept-3"
    assert copied.read_bytes() == file.read_bytes()
    for _ in range(2):
        await source.retire(ROOT, 2)
    assert not file.exists() and (tmp_path / "s" / ".retired" / f"{ROOT.id}.2").exists()
    await source.forget(ROOT, 2)
    assert not list((tmp_path / "s" / ".retired").iterdir())
    await target.drop(draft, ROOT)
    assert not copied.exists()


async def test_a_kept_layer_that_is_a_directory_is_refused_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "machines" / ROOT.id / "layers" / "kept-3" / "upper").mkdir(parents=True)
    with pytest.raises(NotServed, match="machine_disk_mib"):
        await at(tmp_path).size_bytes(ROOT)


@pytest.mark.root
async def test_a_kept_layer_is_not_flushed_while_it_is_mounted_and_is_watched_then(tmp_path: Path) -> None:
    files, file = at(tmp_path), kept(tmp_path)
    await make_filesystem(file)
    layer = tmp_path / "machines" / ROOT.id / "layers" / "kept-3"
    layer.mkdir(parents=True)
    mount_filesystem(file, layer)
    try:
        await files.watch(ROOT, "first")
        first = await files.changed(ROOT, "")
        (layer / "written").write_bytes(os.urandom(BLOCK_BYTES))
        await files.settle(ROOT)
        if first.mark:  # as far as the kernel tells
            assert (await files.changed(ROOT, first.mark)).spans
        following = await files.trim(ROOT, 0)
        assert following and await files.trim(ROOT, following) is None
        with pytest.raises(Unavailable, match="in use"):
            await files.flush(ROOT)
    finally:
        await files.unwatch(ROOT)
        unmount(layer)
    await eventually(lambda: device_of(file) is None)
    await files.flush(ROOT)


@pytest.mark.root
@pytest.mark.parametrize("looked", [True, False])
async def test_watch_that_missed_something_is_begun_anew_and_knows_no_earlier_mark(
    tmp_path: Path, looked: bool
) -> None:
    files, file = at(tmp_path), made(tmp_path)
    await make_filesystem(file)
    mounted = file.parent / "mounted"
    mounted.mkdir()
    mount_filesystem(file, mounted)
    try:
        await files.watch(ONE, "first")
        first = await files.changed(ONE, "")
        if not first.mark:
            pytest.skip("this kernel has no trace of block requests")
        await files.keep_watch(ONE)
        assert (await files.changed(ONE, first.mark)).spans is not None
        tracker = files._watched[ONE.id][1]
        assert isinstance(tracker, ChangedBlocks)
        tracker.lost = True  # as when its ring was full
        if looked:
            await files.keep_watch(ONE)
        second = await files.changed(ONE, first.mark)
        assert second.spans is None and second.mark
        (mounted / "written").write_bytes(os.urandom(BLOCK_BYTES))
        await files.settle(ONE)
        assert (await files.changed(ONE, second.mark)).spans
    finally:
        await files.unwatch(ONE)
        unmount(mounted)


@pytest.mark.root
@pytest.mark.parametrize("kind", KINDS)
async def test_file_that_a_monitor_writes_to_is_watched_where_files_share_blocks(tmp_path: Path, kind: str) -> None:
    """There is no loop device over what a microVM has. What it writes while it ends is told, too."""
    with sharing_disk(tmp_path, kind) as place:
        files, file = at(place), made(place, at_1=b"a" * 100)
        await files.watch(ONE, "first")
        first = await files.changed(ONE, "")
        assert first.mark and first.spans is None
        with file.open("r+b") as opened:
            opened.seek(9 * BLOCK_BYTES)
            opened.write(b"b")
        await files.keep_watch(ONE)
        second = await files.changed(ONE, first.mark)
        assert second.spans == (BlockRange(9, 1),)
        assert (await files.changed(ONE, second.mark)).spans == ()
        later = at(place)  # of another daemon
        await later.end_watches([])
        assert not list((place / ".watched").iterdir())
        await later.watch(ONE, "again")
        assert (await later.changed(ONE, second.mark)).spans is None
        await later.retire(ONE, 2)
        assert not list((place / ".watched").iterdir())


@pytest.mark.root
async def test_file_that_a_monitor_writes_to_is_watched_by_the_disk_below(tmp_path: Path) -> None:
    files, file = at(tmp_path), made(tmp_path, at_1=b"a" * 100)
    await files.watch(ONE, "first")
    first = await files.changed(ONE, "")
    if not first.mark:
        pytest.skip("this directory is not on ext4 on one disk, or the kernel has no trace of its requests")
    with file.open("r+b") as opened:
        opened.seek(9 * BLOCK_BYTES)
        opened.write(b"b")
    await files.keep_watch(ONE)
    second = await files.changed(ONE, first.mark)
    assert second.spans == (BlockRange(9, 1),)
    await files.unwatch(ONE)
    assert await files.changed(ONE, second.mark) == BlockChanges("", None)


@pytest.mark.root
async def test_a_volume_is_not_flushed_while_a_namespace_that_ends_still_has_it_mounted(tmp_path: Path) -> None:
    """What its file system writes when it is given up would not be in the copy."""
    root = tmp_path / "volumes"  # what is mounted below it hosts of a street let go of
    files, file = at(root), made(root)
    await make_filesystem(file)
    mounted = file.parent / "mounted"
    mounted.mkdir()
    mount_filesystem(file, mounted)
    (mounted / "written").write_bytes(b"not yet in the file")
    with holding(mounted):
        unmount(mounted)
        with pytest.raises(Unavailable, match="volume vol_0000000000000001 is in use still"):
            await files.flush(ONE)
    await eventually(lambda: device_of(file) is None)
    await files.flush(ONE)
    mount_filesystem(file, mounted)
    try:
        assert (mounted / "written").read_bytes() == b"not yet in the file"
    finally:
        unmount(mounted)


@contextmanager
def holding(mounted: Path) -> Iterator[None]:
    """As long as a file in it is open, its mount is there, wherever it was detached."""
    with (mounted / "held").open("w"):
        yield


@pytest.mark.root
async def test_file_is_handed_over_up_to_what_its_disk_cannot_read_and_no_zeros_come_for_that(tmp_path: Path) -> None:
    with dying_disk(tmp_path) as disk:
        content = os.urandom(3 * BLOCK_BYTES)
        lost = disk.cut(made(disk.root, at_0=content), BLOCK_BYTES + 8192)
        source = at(disk.root)
        piece = await source.piece(ONE, 0, PIECE)
        assert piece == StoredPiece(0, content[:lost])
        whole = [BlockRange(0, blocks_in(SIZE))]
        for read in (source.piece(ONE, lost, PIECE), source.digests(ONE, whole), source.blocks(ONE, whole)):
            with pytest.raises(UnreadableBytes) as caught:
                await read
            assert caught.value.offset == lost


@pytest.mark.root
async def test_loss_that_is_noted_is_handed_over_as_zeros_and_both_sides_agree_about_them(tmp_path: Path) -> None:
    with dying_disk(tmp_path) as disk:
        content = os.urandom(3 * BLOCK_BYTES)
        lost = disk.cut(made(disk.root, at_0=content), BLOCK_BYTES + 8192)
        source, noted = at(disk.root), list[FileRange]()
        (tmp_path / "there").mkdir()
        target, offset = at(tmp_path / "there"), 0
        await target.begin("01", SIZE, 0)
        while True:
            try:
                piece = await source.piece(ONE, offset, PIECE, noted)
            except UnreadableBytes as error:
                noted.append(error.lost)
                continue
            if piece is None:
                break
            await target.write("01", piece)
            offset = piece.offset + len(piece.data)
        whole = [BlockRange(0, blocks_in(SIZE))]
        assert joined(noted) == (FileRange(lost, len(content) - lost),)
        assert (await source.digests(ONE, whole, joined(noted))).of == (await target.digests_of_draft("01", whole)).of
        found = await source.blocks(ONE, whole, joined(noted))
        assert b"".join(found[block] for block in sorted(found)) == content[:lost] + bytes(2 * BLOCK_BYTES - lost)


async def test_a_file_of_a_memory_that_was_taken_in_is_put_in_place_once(tmp_path: Path) -> None:
    """The daemon that took it in was killed before that was noted: the next one begins the step again."""
    files, file, draft = at(tmp_path), MovedFile("m1", memory="snapshot.came"), "01.memory.snapshot.came"
    (tmp_path / ".incoming").mkdir()
    (tmp_path / ".incoming" / draft).write_bytes(b"record")
    await files.adopt(draft, file)
    taken = tmp_path / "m1/disk"
    assert taken.read_bytes() == b"record"
    taken.unlink()  # what it says is in another file by then
    await files.adopt(draft, file)
    with pytest.raises(FileNotFoundError):
        await files.adopt("01", MovedFile("vol_1"))
