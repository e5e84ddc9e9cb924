"""Volumes and snapshots as text: one line of a list, the lines about one. Pure."""

from collections.abc import Sequence
from datetime import datetime

from hawker.api.contract.volume import Volume, VolumeSnapshot
from hawker.cli.output import age, fields, local, size, table
from hawker.cli.volumes import OwnedVolume

_HEADINGS = ("ID", "NAME", "APP", "STATE", "SIZE", "MACHINE", "AGE")
_WIDE = ("USED", "REGION", "ENCRYPTED")
_SNAPSHOT_HEADINGS = ("ID", "STATUS", "SIZE", "VOLUME SIZE", "KEPT FOR", "CREATED", "AGE")


def listing(volumes: Sequence[OwnedVolume], now: datetime, *, wide: bool = False) -> str:
    """The host of one that is away is named in place of what is not known of it."""
    rows = ((*_row(owned, now), *(_wide(owned.volume) if wide else ())) for owned in volumes)
    return table((*_HEADINGS, *(_WIDE if wide else ())), rows)


def _row(owned: OwnedVolume, now: datetime) -> tuple[object, ...]:
    volume, there = owned.volume, owned.volume.host_status == "ok"
    return (
        volume.id,
        volume.name,
        owned.app,
        volume.state if there else f"{volume.zone} away",
        f"{volume.size_gb} GiB",
        volume.attached_machine_id,
        age(volume.created_at, now) if there else None,
    )


def _wide(volume: Volume) -> tuple[object, ...]:
    if volume.host_status != "ok":
        return (None, volume.region, None)
    used = None if volume.bytes_used is None else size(volume.bytes_used)
    return (used, volume.region, _yes(volume.encrypted))


def about(owned: OwnedVolume) -> str:
    volume = owned.volume
    used = volume.bytes_used is not None and volume.bytes_total is not None
    return fields(
        (
            ("id", volume.id),
            ("name", volume.name),
            ("app", owned.app),
            ("state", volume.state),
            ("size", f"{volume.size_gb} GiB"),
            ("used", f"{size(volume.bytes_used or 0)} of {size(volume.bytes_total or 0)}" if used else None),
            ("filesystem", volume.fstype),
            ("encrypted", _yes(volume.encrypted)),
            ("region", volume.region),
            ("machine", volume.attached_machine_id),
            ("snapshots", _snapshots(volume.auto_backup_enabled, volume.snapshot_retention)),
            ("created", local(volume.created_at)),
        )
    )


def _snapshots(daily: bool, days: int) -> str:
    return f"{'one a day' if daily else 'manual'}, kept for {days} day{'s' * (days != 1)}"


def snapshots(answer: Sequence[VolumeSnapshot], now: datetime) -> str:
    """Newest first, as they are told."""
    return table(_SNAPSHOT_HEADINGS, (_snapshot(each, now) for each in answer))


def _snapshot(snapshot: VolumeSnapshot, now: datetime) -> tuple[object, ...]:
    return (
        snapshot.id,
        snapshot.status,
        size(snapshot.size),
        size(snapshot.volume_size),
        f"{snapshot.retention_days} d",
        local(snapshot.created_at),
        age(snapshot.created_at, now),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
