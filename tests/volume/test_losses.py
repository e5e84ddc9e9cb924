import msgspec
import pytest

from hawker.errors import Damaged
from hawker.host.unreadable import FileRange
from hawker.ids import AppName, NodeId, VolumeId
from hawker.record.volume import VolumeRecord, VolumeState
from hawker.volume.losses import bounded, check_usable, damaged_by, noted, ranges_of

VOLUME = VolumeRecord(
    id=VolumeId("vol_0000000000000001"),
    app=AppName("shop"),
    name="data",
    region="mad",
    state=VolumeState.CREATED,
    size_gb=1,
    created_at=0.0,
    updated_at=0.0,
)


def test_losses_are_noted_in_order_and_each_once() -> None:
    places = noted((), [FileRange(8192, 4096)])
    assert noted(places, [FileRange(0, 4096), FileRange(4096, 4096)]) == ((0, 12288),)
    assert ranges_of(places) == (FileRange(8192, 4096),)


def test_losses_beyond_the_bound_are_joined_over_the_smallest_gaps_and_none_is_left_out() -> None:
    lost = [FileRange(0, 10), FileRange(100, 10), FileRange(115, 10), FileRange(130, 10), FileRange(500, 10)]
    assert bounded(lost, 5) == tuple(lost)
    assert bounded(lost, 3) == (FileRange(0, 10), FileRange(100, 40), FileRange(500, 10))
    assert bounded(lost, 1) == (FileRange(0, 510),)


def test_volume_of_which_something_was_lost_is_used_by_nobody_until_that_is_accepted() -> None:
    here = NodeId("0a1b2c3d")
    assert damaged_by(VOLUME, here, (), 7.0) == VOLUME
    damaged = damaged_by(VOLUME, here, ((4096, 4096),), 7.0)
    with pytest.raises(Damaged, match=f"lost 4096 bytes.*volumes update {VOLUME.id} --accept-damage"):
        check_usable(damaged)
    assert damaged.damage is not None
    accepted = msgspec.structs.replace(damaged, damage=msgspec.structs.replace(damaged.damage, accepted_at=8.0))
    check_usable(accepted)
    check_usable(VOLUME)
    again = damaged_by(accepted, NodeId("4e5f6071"), ((0, 4096),), 9.0)
    assert again.damaged and again.damage is not None and again.damage.lost == ((0, 8192),)
