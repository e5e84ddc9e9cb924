import pytest

from hawker.errors import NoRoom
from hawker.volume.copies import CopyRoom, check_room

MIB = 1 << 20


def test_a_copy_that_needs_nothing_always_has_room() -> None:
    check_room(CopyRoom(needed_bytes=0, free_bytes=0), "volume vol_1")
    check_room(CopyRoom(needed_bytes=MIB, free_bytes=MIB), "volume vol_1")


def test_what_is_missing_is_told_in_whole_mebibytes() -> None:
    with pytest.raises(NoRoom, match="copy of volume vol_1: 2 MiB of disk are missing") as refused:
        check_room(CopyRoom(needed_bytes=2 * MIB, free_bytes=MIB - 1), "volume vol_1")
    assert (refused.value.scope, refused.value.shortfall) == ("host", {"disk_mb": 2})
