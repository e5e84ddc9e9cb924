import pytest

from hawker.errors import NoRoom
from hawker.ids import AppName, VolumeId
from hawker.record.volume import Fstype, VolumeRecord, VolumeState
from hawker.volume.disks import CopyRoom, Usage, check_room, disk_of


def test_the_host_hears_of_a_volume_what_it_has_to_know() -> None:
    record = VolumeRecord(
        id=VolumeId("vol_0000000000000001"),
        app=AppName("web"),
        name="data",
        region="local",
        state=VolumeState.CREATED,
        size_gb=3,
        encrypted=True,
        created_at=0.0,
        updated_at=0.0,
    )
    disk = disk_of(record)
    assert (disk.id, disk.size_bytes, disk.fstype, disk.encrypted) == (record.id, 3 << 30, Fstype.EXT4, True)


def test_bytes_follow_from_blocks() -> None:
    usage = Usage(block_size=1024, blocks=10, blocks_free=4, blocks_avail=3)
    assert (usage.bytes_total, usage.bytes_used) == (10_240, 6144)


MIB = 1 << 20


def test_a_copy_that_needs_nothing_always_has_room() -> None:
    check_room(CopyRoom(needed_bytes=0, free_bytes=0), "volume vol_1")
    check_room(CopyRoom(needed_bytes=MIB, free_bytes=MIB), "volume vol_1")


def test_missing_room_is_told_in_whole_mebibytes() -> None:
    with pytest.raises(NoRoom, match="copy of volume vol_1: 2 MiB of disk are missing") as refused:
        check_room(CopyRoom(needed_bytes=2 * MIB, free_bytes=MIB - 1), "volume vol_1")
    assert (refused.value.scope, refused.value.shortfall) == ("host", {"disk_mb": 2})
