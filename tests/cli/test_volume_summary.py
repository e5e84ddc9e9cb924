from datetime import timedelta

import click

from hawker.cli.volume_summary import about, listing, snapshots
from hawker.cli.volumes import OwnedVolume
from tests.cli.fake_volumes import AT, snapshot, volume

NOW = AT + timedelta(hours=5)


def test_a_volume_whose_use_is_not_known_has_none() -> None:
    row = listing([OwnedVolume("shop", volume(bytes_used=None, bytes_total=None))], NOW).splitlines()[1]
    assert row.split()[4:7] == ["3", "GiB", "-"]
    assert "used" not in about(OwnedVolume("shop", volume(bytes_used=None, bytes_total=None)))


def test_one_day_is_no_days() -> None:
    text = about(OwnedVolume("shop", volume(snapshot_retention=1, auto_backup_enabled=False)))
    assert "manual, kept for 1 day" in text.splitlines()[-2]


def test_a_snapshot_s_row_says_how_old_it_is_and_how_long_it_is_kept() -> None:
    row = click.unstyle(snapshots([snapshot(status="failed", size=0)], NOW)).splitlines()[1].split()
    assert row[1:8] == ["failed", "0", "B", "3.0", "GiB", "5", "d"]
    assert row[-2:] == ["5", "h"]
