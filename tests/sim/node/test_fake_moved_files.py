import pytest

from hawker.ids import VolumeId
from hawker.record.volume import Fstype
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_moved_files import PIECES, FakeMovedFiles
from hawker.sim.node.fake_volumes import FakeVolume, FakeVolumes

pytestmark = pytest.mark.anyio
ONE = VolumeId("vol_0000000000000001")


def files() -> FakeMovedFiles:
    points = CrashPoints()
    volumes = FakeVolumes(points)
    volumes.files[ONE] = FakeVolume(1 << 30, 1 << 30, Fstype.EXT4, 7)
    return FakeMovedFiles(points, volumes)


async def filled(files: FakeMovedFiles) -> None:
    await files.begin("01", 1 << 30, 0)
    offset, count = 0, 0
    while (piece := await files.piece(ONE, offset, 1 << 20)) is not None:
        await files.write("01", piece)
        offset, count = piece.offset + len(piece.data), count + 1
    assert count == PIECES


async def test_a_draft_holds_what_the_volume_held() -> None:
    moved = files()
    await filled(moved)
    assert await moved.digest_of_draft("01") == await moved.digest(ONE)
    await moved.retire(ONE, 2)
    await moved.adopt("01", ONE)
    assert await moved.digest(ONE) == "content 7" and await moved.drafts() == []


async def test_a_draft_that_was_not_synced_is_lost_with_the_power() -> None:
    moved = files()
    await filled(moved)
    moved.cut_power()
    assert await moved.digest_of_draft("01") == "content None"
    await filled(moved)
    await moved.sync("01")
    moved.cut_power()
    assert await moved.digest_of_draft("01") == "content 7"


async def test_a_disk_that_lies_spoils_a_piece() -> None:
    moved = files()
    moved.spoils = 1
    await filled(moved)
    assert await moved.digest_of_draft("01") != await moved.digest(ONE)
