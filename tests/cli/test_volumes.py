import pytest

from hawker.cli.volumes import OwnedVolume, chosen
from hawker.errors import BadRequest, NotFound
from tests.cli.fake_volumes import volume

OLD, NEW, LEFT = "vol_0000000000000001", "vol_0000000000000002", "vol_0000000000000003"
VOLUMES = [
    OwnedVolume("shop", volume(OLD, name="data")),
    OwnedVolume("shop", volume(NEW, name=OLD[:10])),
    OwnedVolume("shop", volume(LEFT, name="data", state="pending_destroy")),
]


def test_an_id_is_better_than_a_name_and_a_name_than_a_beginning() -> None:
    assert chosen(VOLUMES, OLD, None).volume.id == OLD
    assert chosen(VOLUMES, OLD[:10], None).volume.id == NEW
    assert chosen(VOLUMES, NEW[:-1] + "2", None).volume.id == NEW


def test_one_that_was_destroyed_counts_only_where_nothing_else_fits() -> None:
    assert chosen(VOLUMES, "data", None).volume.id == OLD
    assert chosen(VOLUMES[2:], "data", None).volume.id == LEFT
    assert chosen(VOLUMES, LEFT, None).volume.id == LEFT


def test_several_and_none_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"matches vol_.*1 \(shop/data, free\), vol_.*: give the id$"):
        chosen(VOLUMES, "vol_", None)
    with pytest.raises(NotFound, match="in app 'shop'"):
        chosen(VOLUMES, "logs", "shop")
    with pytest.raises(NotFound):
        chosen([], "", None)
