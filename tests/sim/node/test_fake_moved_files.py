import pytest

from hawker.clock import ManualClock
from hawker.host.changed_blocks import BlockRange, spans_of
from hawker.ids import MachineId, VolumeId
from hawker.record.volume import Fstype
from hawker.runtime.fake_host import FakeHost
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakeRootfs
from hawker.sim.node.fake_moved_files import PIECES, FakeMovedFiles
from hawker.sim.node.fake_volumes import FakeCopies, FakeVolume, FakeVolumes
from hawker.volume.moved_blocks import differing
from hawker.volume.moved_files import BlockChanges, MovedFile

pytestmark = pytest.mark.anyio
VOLUME = VolumeId("vol_0000000000000001")
ONE, ROOT = MovedFile(VOLUME), MovedFile("77424481f6cc77", "kept")
ALL = [BlockRange(0, PIECES)]


def files() -> FakeMovedFiles:
    points = CrashPoints()
    volumes = FakeVolumes(points)
    volumes.files[VOLUME] = FakeVolume(1 << 30, 1 << 30, Fstype.EXT4, 7)
    rootfs = FakeRootfs(points)
    rootfs.writes[MachineId("77424481f6cc77"), "kept"] = 3
    return FakeMovedFiles(points, volumes, rootfs, FakeCopies(points, volumes), FakeHost(ManualClock()))


async def filled(files: FakeMovedFiles, file: MovedFile = ONE) -> None:
    await files.begin("01", 1 << 30, 0)
    offset, count = 0, 0
    while (piece := await files.piece(file, offset, 1 << 20)) is not None:
        await files.write("01", piece)
        offset, count = piece.offset + len(piece.data), count + 1
    assert count == PIECES


async def test_a_draft_holds_what_the_volume_held() -> None:
    moved = files()
    await filled(moved)
    assert await moved.digests_of_draft("01", ALL) == await moved.digests(ONE, ALL)
    await moved.retire(ONE, 2)
    await moved.adopt("01", ONE)
    assert moved._volumes.files[VOLUME].content == 7 and await moved.drafts() == []


async def test_a_kept_layer_moves_beside_the_volume() -> None:
    moved = files()
    assert await moved.size_bytes(ROOT) and await moved.size_bytes(MovedFile(ROOT.id, "kept-2")) is None
    await filled(moved, ROOT)
    await moved.retire(ROOT, 2)
    assert moved.retired == {(ROOT.id, 2): 3} and moved._rootfs.writes == {}
    await moved.adopt("01", ROOT)
    assert moved._rootfs.writes == {(ROOT.id, "kept"): 3} and moved._rootfs.directories == {ROOT.id}
    await moved.drop("01", ROOT)
    assert moved._rootfs.writes == {} and VOLUME in moved._volumes.files


async def test_a_draft_that_was_not_synced_is_lost_with_the_power() -> None:
    moved = files()
    await filled(moved)
    moved.cut_power()
    assert (await moved.digests_of_draft("01", ALL)).of == {}
    await filled(moved)
    await moved.sync("01")
    moved.cut_power()
    assert len((await moved.digests_of_draft("01", ALL)).of) == PIECES


async def test_a_disk_that_lies_spoils_a_piece() -> None:
    moved = files()
    moved.spoils = 1
    await filled(moved)
    upto, wrong = differing(ALL, await moved.digests_of_draft("01", ALL), await moved.digests(ONE, ALL))
    assert (upto, len(wrong)) == (PIECES, 1)
    await moved.overwrite("01", spans_of(wrong), await moved.blocks(ONE, spans_of(wrong)))
    assert await moved.digests_of_draft("01", ALL) == await moved.digests(ONE, ALL)


async def test_a_change_is_known_to_the_watch_that_saw_it_alone() -> None:
    moved = files()
    assert await moved.changed(ONE, "") == BlockChanges("", None)
    await moved.watch(ONE, "first")
    mark = (await moved.changed(ONE, "")).mark
    assert (await moved.changed(ONE, mark)).spans == ()
    moved._volumes.files[VOLUME].content += 1
    assert (await moved.changed(ONE, mark)).spans == (BlockRange(8 % PIECES, 1),)
    moved.forget_watches()
    await moved.watch(ONE, "second")
    assert (await moved.changed(ONE, mark)).spans is None
    await moved.unwatch(ONE)
    assert await moved.changed(ONE, mark) == BlockChanges("", None)
