"""Bodies about volumes and their snapshots. Sizes in GB are GiB, others bytes or blocks."""

from datetime import datetime
from typing import Literal

from hawker.api.bodies.body import Answer, Request
from hawker.api.bounds import RetentionDays
from hawker.config import Guest


class Volume(Answer, frozen=True, kw_only=True):
    """`attached_machine_id` is null when it is free: it is always sent. A summary has no blocks and bytes."""

    id: str
    name: str
    state: str
    size_gb: int
    region: str
    zone: str
    encrypted: bool
    attached_machine_id: str | None
    attached_alloc_id: str | None
    created_at: datetime
    fstype: str
    snapshot_retention: int
    auto_backup_enabled: bool
    host_status: str
    type: str
    blocks: int | None = None
    block_size: int | None = None
    blocks_free: int | None = None
    blocks_avail: int | None = None
    bytes_used: int | None = None
    bytes_total: int | None = None


class OrgVolume(Volume, frozen=True, kw_only=True):
    app_name: str
    updated_at: datetime


class OrgVolumes(Answer, frozen=True, kw_only=True):
    """One page, by volume id. `error_regions` are those that could not be asked."""

    volumes: tuple[OrgVolume, ...]
    next_cursor: str = ""
    last_volume_id: str = ""
    last_updated_at: datetime | None = None
    error_regions: tuple[str, ...]


class CreateVolumeRequest(Request, frozen=True, kw_only=True):
    """Empty, or restored from `snapshot_id`, or a fork of `source_volume_id`. What says where to place it (zones,
    `compute`) has one answer on one node."""

    name: str
    region: str | None = None
    size_gb: int | None = None
    encrypted: bool | None = None
    fstype: Literal["ext4", "raw"] | None = None
    snapshot_id: str | None = None
    snapshot_retention: RetentionDays | None = None
    auto_backup_enabled: bool | None = None
    source_volume_id: str | None = None
    require_unique_zone: bool | None = None
    unique_zone_app_wide: bool | None = None
    compute: Guest | None = None
    compute_image: str | None = None


class UpdateVolumeRequest(Request, frozen=True, kw_only=True):
    snapshot_retention: RetentionDays | None = None
    auto_backup_enabled: bool | None = None


class ExtendVolumeRequest(Request, frozen=True, kw_only=True):
    """The new size, not what is added."""

    size_gb: int


class ExtendVolumeAnswer(Answer, frozen=True, kw_only=True):
    volume: Volume
    needs_restart: bool


class VolumeSnapshot(Answer, frozen=True, kw_only=True):
    """`size` is what it takes of the disk, `volume_size` what the volume had, both in bytes."""

    id: str
    size: int
    volume_size: int
    digest: str
    created_at: datetime
    status: str
    retention_days: int


class SnapshotBackup(Answer, frozen=True, kw_only=True):
    backup: VolumeSnapshot


class SnapshotCreated(Answer, frozen=True, kw_only=True):
    """As the real API answers; clients look at the status."""

    Msg: SnapshotBackup
