"""Volumes as the API shows them."""

from typing import Any

from hawker.api.contract.body import instant
from hawker.api.contract.volume import OrgVolume, Volume
from hawker.record.volume import VolumeRecord
from hawker.volume.disks import Usage


def volume(record: VolumeRecord, zone: str, usage: Usage | None) -> Volume:
    return Volume(**_fields(record, zone, usage))


def org_volume(record: VolumeRecord, zone: str, usage: Usage | None) -> OrgVolume:
    updated_at = instant(record.updated_at)
    return OrgVolume(**_fields(record, zone, usage), app_name=record.app, updated_at=updated_at)


def _fields(record: VolumeRecord, zone: str, usage: Usage | None) -> dict[str, Any]:
    """`attached_machine_id` is null and never empty when it is free; `zone` is the host."""
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state.value,
        "size_gb": record.size_gb,
        "region": record.region,
        "zone": zone,
        "encrypted": record.encrypted,
        "attached_machine_id": record.machine,
        "attached_alloc_id": record.machine,
        "created_at": instant(record.created_at),
        "fstype": record.fstype.value,
        "snapshot_retention": record.snapshot_retention,
        "auto_backup_enabled": record.auto_backup,
        "host_status": "ok",
        "type": "local",
        **_blocks(usage),
    }


def _blocks(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    return {
        "blocks": usage.blocks,
        "block_size": usage.block_size,
        "blocks_free": usage.blocks_free,
        "blocks_avail": usage.blocks_avail,
        "bytes_used": usage.bytes_used,
        "bytes_total": usage.bytes_total,
    }
