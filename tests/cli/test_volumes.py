from datetime import timedelta

import click
import msgspec
import pytest

from hawker.api.contract.volume import VolumeDamage
from hawker.cli.volumes import OwnedVolume, SizeAsked, about, chosen, listing, size_gib, snapshots, whole_gib
from hawker.errors import BadRequest, NotFound
from tests.cli.fake_volumes import AT, snapshot, volume


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("10", SizeAsked(10)),
        ("10g", SizeAsked(10)),
        ("10 GiB", SizeAsked(10)),
        ("+5", SizeAsked(5, more=True)),
        ("+5gb", SizeAsked(5, more=True)),
    ],
)
def test_sizes_are_written_as_people_write_them(text: str, asked: SizeAsked) -> None:
    assert size_gib(text) == asked


@pytest.mark.parametrize("text", ["", "0", "+0", "-1", "1.5", "ten", "10m", "9" * 20])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size in GiB"):
        size_gib(text)


def test_a_new_volume_cannot_be_larger_by_something() -> None:
    assert whole_gib("3") == 3
    with pytest.raises(ValueError, match="needs a size, not an increase"):
        whole_gib("+3")


NOW = AT + timedelta(hours=5)


def test_a_volume_whose_use_is_not_known_has_none() -> None:
    row = listing([OwnedVolume("shop", volume(bytes_used=None, bytes_total=None))], NOW).splitlines()[1]
    assert row.split()[4:7] == ["3", "GiB", "-"]
    assert "used" not in about(OwnedVolume("shop", volume(bytes_used=None, bytes_total=None)))


def test_host_has_a_column_where_one_is_away_or_it_may_be_wide() -> None:
    here, away = OwnedVolume("shop", volume()), OwnedVolume("shop", volume(host_status="unreachable"))
    assert "HOST" not in listing([here], NOW) and f" {here.volume.zone} " in listing([here], NOW, wide=True)
    headings, first, second = click.unstyle(listing([here, away], NOW)).splitlines()
    assert "HOST" in headings and "away" not in first
    assert f"{away.volume.state}  {away.volume.zone} away" in second


def test_one_day_is_no_days() -> None:
    text = about(OwnedVolume("shop", volume(snapshot_retention=1, auto_backup_enabled=False)))
    assert "manual, kept for 1 day" in text.splitlines()[-2]


def test_a_snapshot_s_row_says_how_old_it_is_and_how_long_it_is_kept() -> None:
    row = click.unstyle(snapshots([snapshot(status="failed", size=0)], NOW)).splitlines()[1].split()
    assert row[1:8] == ["failed", "0", "B", "3.0", "GiB", "5", "d"]
    assert row[-2:] == ["5", "h"]


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


def test_damage_of_a_volume_is_told_and_whether_somebody_accepted_it() -> None:
    lost = tuple((10 * number, 5) for number in range(30))
    damage = VolumeDamage(node="0a1b2c3d", accepted=False, repaired=False, lost=lost, lost_bytes=150, noted_at=AT)
    owned = OwnedVolume("shop", volume(damage=damage))
    assert "created, damaged" in listing([owned], NOW)
    told = about(owned)
    assert "150 B lost at node 0a1b2c3d" in told and "not accepted: no machine starts with it" in told
    assert "0 to 4, 10 to 14, " in told and "190 to 194, and 10 more: see `--output json`" in told
    assert "its files are looked for" in told
    named = msgspec.structs.replace(damage, files=("/dir/ledger",), unnamed="2 blocks are of no file")
    assert "/dir/ledger\nunnamed     2 blocks are of no file" in about(OwnedVolume("shop", volume(damage=named)))
    accepted = OwnedVolume("shop", volume(damage=msgspec.structs.replace(damage, accepted=True)))
    assert "damaged" not in listing([accepted], NOW) and "the next mount repairs it" in about(accepted)
