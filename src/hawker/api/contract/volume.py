"""Bodies about volumes and their snapshots. Sizes in GB are GiB, others bytes or blocks."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from hawker.api.bounds import PageLimit, RetentionDays
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.org import OrgParams
from hawker.api.route import Page, Tag, Unary
from hawker.config import Guest
from hawker.errors import (
    Conflict,
    Damaged,
    LeaseHeld,
    Moved,
    MoveUnderWay,
    NoRoom,
    NotFound,
    NotServed,
    Unavailable,
    WrongState,
)
from hawker.permission import Action


class VolumeDamage(Answer, frozen=True, kw_only=True):
    """What of a volume is zeros, because the disk of `node` could not read it when the volume moved from there: `lost`
    are ranges of bytes of its file, in order: offset and count. `files` are those that lost something, by their paths
    in the volume; `unnamed` says why there may be more, and is absent until they were looked for. Until it is
    `accepted`, no machine starts with the volume, and nothing is made from it; once it is, the next mount repairs its
    filesystem."""

    node: str
    accepted: bool
    repaired: bool
    """True when a mount has repaired the filesystem since the damage was accepted."""
    lost: tuple[tuple[int, int], ...]
    lost_bytes: int
    """How many bytes are lost: the sum of the counts in `lost`."""
    noted_at: datetime
    files: tuple[str, ...] = ()
    unnamed: str | None = None


class Volume(Answer, frozen=True, kw_only=True):
    """`attached_machine_id` is null when it is free: it is always sent, and `attached_alloc_id` has its value once
    more, for older clients. A summary has no blocks and bytes. `damage` is there once some of it was lost.
    `host_status` is "ok", or "unreachable" where the node `zone` did not answer: then id, name, state, size, region and
    machine are what it said last, and all else is empty. `blocks` and what follows are of its filesystem, while that is
    mounted: `block_size` is bytes, `blocks_free` has those that root alone may use, `blocks_avail` has not;
    `bytes_total` is that of all blocks, and `bytes_used` of those that are not free."""

    id: str
    """The id of the volume: `vol_` and 17 letters and digits, unique in the cluster."""
    name: str
    """The name of the volume, as its order gave it; several volumes of an app may have the same."""
    state: str
    """The state of the volume: `created` once it is ready; docs/volumes.md has the others."""
    size_gb: int
    """The size of the volume in GiB, 1 or more."""
    region: str
    """The code of the region of the volume's node."""
    zone: str
    encrypted: bool
    """True when the volume's file is encrypted on the host's disk."""
    attached_machine_id: str | None
    attached_alloc_id: str | None
    created_at: datetime
    fstype: str
    """The kind of the volume's filesystem: `ext4`."""
    snapshot_retention: int
    """Days for which a snapshot of the volume is kept, 1 to 60."""
    auto_backup_enabled: bool
    """True when the node takes snapshots of the volume by schedule."""
    host_status: str
    type: str
    """Always `local`: the volume is on its node's disk."""
    blocks: int | None = None
    block_size: int | None = None
    blocks_free: int | None = None
    blocks_avail: int | None = None
    bytes_used: int | None = None
    bytes_total: int | None = None
    damage: VolumeDamage | None = None


class OrgVolume(Volume, frozen=True, kw_only=True):
    app_name: str
    updated_at: datetime


class OrgVolumes(Answer, frozen=True, kw_only=True):
    """One page, by volume id. `error_regions` are those that could not be asked."""

    volumes: tuple[OrgVolume, ...]
    next_cursor: str = ""
    """The `cursor` with which the next call shows the next page; empty on the last page."""
    last_volume_id: str = ""
    """The id of the last volume on this page; empty for an empty page."""
    last_updated_at: datetime | None = None
    error_regions: tuple[str, ...]


class CreateVolumeRequest(Request, frozen=True, kw_only=True):
    """A new volume: empty, or restored from `snapshot_id` or from a `backup` of this app, or a fork of
    `source_volume_id`. `require_unique_zone`: it is on a host of the region that has no volume of this name, with
    `unique_zone_app_wide` none of the app, and a fork not on that of its source, where there is such a host that takes
    it; `zone` in the answer is the host. `compute` has no effect."""

    name: str
    """Up to 63 letters, digits, dashes and underscores."""
    region: str | None = None
    """The code of the region of the volume's node; absent: the region of the node that is asked."""
    size_gb: int | None = None
    """GiB, 1 to what the node lets a volume have; absent: 3, or as large as what it is made from."""
    encrypted: bool | None = None
    """True: the volume is encrypted, or the call is refused; absent: encrypted where the host can."""
    fstype: Literal["ext4", "raw"] | None = None
    snapshot_id: str | None = None
    snapshot_retention: RetentionDays | None = None
    auto_backup_enabled: bool | None = None
    """The node takes snapshots of it by schedule; absent: yes."""
    source_volume_id: str | None = None
    backup: str | None = None
    require_unique_zone: bool | None = None
    unique_zone_app_wide: bool | None = None
    compute: Guest | None = None
    compute_image: str | None = None
    """Clients send it; it has no effect."""


class UpdateVolumeRequest(Request, frozen=True, kw_only=True):
    """With `accept_damage` a volume of which some is lost may be used again, with what is left of it."""

    snapshot_retention: RetentionDays | None = None
    auto_backup_enabled: bool | None = None
    """The node takes snapshots of it by schedule; absent: as before."""
    accept_damage: bool | None = None


class ExtendVolumeRequest(Request, frozen=True, kw_only=True):
    """The new size, not what is added."""

    size_gb: int
    """The new size of the volume in GiB, no less than it has."""


class ExtendVolumeAnswer(Answer, frozen=True, kw_only=True):
    """`needs_restart` until the file system has grown. `held_by` are processes of the host that keep it as it was: they
    have to end or to let go of it first."""

    volume: Volume
    needs_restart: bool
    held_by: tuple[str, ...] = ()


class MoveVolumeRequest(Request, frozen=True, kw_only=True):
    """The volume becomes one of `app`, which is of the same organization."""

    app: str


class SnapshotOwner(Answer, frozen=True, kw_only=True):
    """The name of the app whose volume the snapshot `id` is of: `app`."""

    id: str
    app: str


class VolumeSnapshot(Answer, frozen=True, kw_only=True):
    """`size` is what it takes of the disk, `volume_size` what the volume had, both in bytes. `node` is there while it
    is at another node than its volume, and has yet to follow it."""

    id: str
    """The id of the snapshot, unique in the cluster."""
    size: int
    volume_size: int
    digest: str
    """Always empty: clients read it."""
    created_at: datetime
    status: str
    """`waiting`, `running`, `created` (it can be restored) or `failed`."""
    retention_days: int
    """Days for which the snapshot is kept."""
    node: str | None = None


class BackupState(StrEnum):
    WAITING = "waiting"  # its snapshot is being taken, or its turn has not come
    RUNNING = "running"
    CREATED = "created"
    FAILED = "failed"  # there is no such backup; `error` says why


class VolumeBackup(Answer, frozen=True, kw_only=True):
    """One backup that was begun. `backup` is its name in its app, VOLUME/TIME; `snapshot` is what is sent. Sizes are
    bytes, once it is created: what the volume has stored, and what was sent of that because it was not there yet."""

    backup: str
    snapshot: str
    state: BackupState
    error: str | None = None
    """The reason why the backup failed, for people; null otherwise."""
    stored_bytes: int | None = None
    """Bytes that the volume has stored; null until the backup is created."""
    sent_bytes: int | None = None
    """Bytes that were sent, as they were not there yet; null until the backup is created."""


class KeptBackup(Answer, frozen=True, kw_only=True):
    """One that is listed where backups go. Its volume may be gone. All of it was read at `verified_at` or later and was
    whole, at `restored_at` by way of a restore; null for one that was not read yet, or not all of it. `stale` when
    nobody has read it in the last 30 days. `damage` is what was found wrong with it since, else null."""

    backup: str
    """The name of the backup in its app: VOLUME/TIME."""
    volume: str
    """The id of the volume that was backed up."""
    verified_at: datetime | None = None
    restored_at: datetime | None = None
    stale: bool = False
    damage: str | None = None


class SnapshotBackup(Answer, frozen=True, kw_only=True):
    backup: VolumeSnapshot


class SnapshotCreated(Answer, frozen=True, kw_only=True):
    """The new snapshot, in the form that the live API answers; clients look at the status."""

    Msg: SnapshotBackup


# Calls about volumes and their snapshots.

_ALL = "/v1/apps/{app_name}/volumes"
_ONE = f"{_ALL}/{{volume_id}}"


class BackupParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The name of the app that has the volume."""
    volume_id: str
    """The id of the volume that was backed up; it may be gone."""
    snapshot: str
    """The id of the snapshot that was sent."""


class VolumeParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app that the volume must be one of; else it is not found."""
    volume_id: str
    """The volume's id, `vol_` and letters and digits."""


class SnapshotParams(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_id: str
    """The snapshot's id, `vs_` and letters and digits."""


class ListVolumesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A `summary` leaves out blocks and bytes. Without a `limit` the whole list is answered."""

    summary: bool = False
    limit: PageLimit | None = None
    cursor: str | None = None
    """The cursor that the page before gave (`fly-next-cursor`); absent: the first page."""


class OrgVolumesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_after` is RFC 3339; `limit` at most 1000, which is also what it is without one; a `summary` leaves out
    blocks and bytes."""

    include_deleted: bool = False
    """True also lists volumes that were deleted and can still be undeleted."""
    region: str | None = None
    """The code of a region: the answer has only volumes of it; absent: of all regions."""
    state: tuple[str, ...] = ()
    """States of volumes: the answer has only volumes in one of them; empty: in any state."""
    summary: bool = False
    updated_after: datetime | None = None
    cursor: str | None = None
    """The `next_cursor` of the page before: this page begins after it; absent: the first page."""
    limit: PageLimit | None = None


LIST_VOLUMES = Unary(
    name="list_volumes",
    method="GET",
    path=_ALL,
    params=AppParams,
    query=ListVolumesQuery,
    response=Page[Volume],
    tag=Tag.VOLUMES,
    summary="List an app's volumes",
    errors=(NotFound,),
)

CREATE_VOLUME = Unary(
    name="create_volume",
    method="POST",
    path=_ALL,
    params=AppParams,
    body=CreateVolumeRequest,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Create a volume: empty, from a snapshot or backup, or as a fork of another volume",
    errors=(NotFound, NotServed, NoRoom, WrongState, Conflict, Unavailable, Damaged),
    action=Action.CREATE,
    timeout_s=90.0,
)

GET_VOLUME = Unary(
    name="get_volume",
    method="GET",
    path=_ONE,
    params=VolumeParams,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Show a volume",
    errors=(NotFound,),
)

UPDATE_VOLUME = Unary(
    name="update_volume",
    method="PUT",
    path=_ONE,
    params=VolumeParams,
    body=UpdateVolumeRequest,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Set daily snapshots of a volume and their retention, or accept what was lost of it",
    errors=(NotFound, WrongState, Moved, MoveUnderWay),
)

DELETE_VOLUME = Unary(
    name="delete_volume",
    method="DELETE",
    path=_ONE,
    params=VolumeParams,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Destroy a volume that no machine has; undelete works for a day",
    errors=(NotFound, Conflict, WrongState),
)

EXTEND_VOLUME = Unary(
    name="extend_volume",
    method="PUT",
    path=f"{_ONE}/extend",
    params=VolumeParams,
    body=ExtendVolumeRequest,
    response=ExtendVolumeAnswer,
    tag=Tag.VOLUMES,
    summary="Make a volume larger, also while a machine uses it",
    errors=(NotFound, NoRoom, Conflict, WrongState, Unavailable, Damaged),
)

LIST_SNAPSHOTS = Unary(
    name="list_snapshots",
    method="GET",
    path=f"{_ONE}/snapshots",
    params=VolumeParams,
    response=tuple[VolumeSnapshot, ...],
    tag=Tag.VOLUMES,
    summary="List a volume's snapshots",
    errors=(NotFound,),
)

CREATE_SNAPSHOT = Unary(
    name="create_snapshot",
    method="POST",
    path=f"{_ONE}/snapshots",
    params=VolumeParams,
    response=SnapshotCreated,
    tag=Tag.VOLUMES,
    summary="Take a snapshot of a volume",
    errors=(NotFound, NoRoom, Conflict, WrongState, Unavailable, Damaged),
    action=Action.WRITE,
)

UNDELETE_VOLUME = Unary(
    name="undelete_volume",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/undelete",
    params=VolumeParams,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Undelete a volume that was destroyed less than a day ago",
    errors=(NotFound, WrongState),
    action=Action.DELETE,  # who may destroy it may think again
)

DETACH_VOLUME = Unary(
    name="detach_volume",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/detach",
    params=VolumeParams,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Detach a volume from its stopped machine, so that another one can have it",
    errors=(NotFound, LeaseHeld, WrongState),
)

MOVE_VOLUME = Unary(
    name="move_volume",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/move",
    params=VolumeParams,
    body=MoveVolumeRequest,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Move a free volume and its snapshots to another app of the organization",
    errors=(NotFound, Unavailable, WrongState),
    action=Action.DELETE,  # the app has it no more
    strict=True,
)

CREATE_BACKUP = Unary(
    name="create_backup",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/backups",
    params=VolumeParams,
    response=VolumeBackup,
    tag=Tag.VOLUMES,
    summary="Back a volume up to where the node's backups go, also while a machine uses it",
    errors=(NotFound, NotServed, NoRoom, Conflict, WrongState, Unavailable, Damaged),
    action=Action.WRITE,
)

GET_BACKUP = Unary(
    name="get_backup",
    method="GET",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/backups/{snapshot}",
    params=BackupParams,
    response=VolumeBackup,
    tag=Tag.VOLUMES,
    summary="Show a backup that was begun, by its snapshot",
    errors=(NotFound,),
)

LIST_BACKUPS = Unary(
    name="list_backups",
    method="GET",
    path="/hawker/v1/apps/{app_name}/backups",
    params=AppParams,
    response=tuple[KeptBackup, ...],
    tag=Tag.VOLUMES,
    summary="List the backups of an app's volumes, also of those that are gone",
    errors=(NotFound, NotServed, Unavailable),
    timeout_s=90.0,
)

FIND_SNAPSHOT = Unary(
    name="find_snapshot",
    method="GET",
    path="/hawker/v1/snapshots/{snapshot_id}",
    params=SnapshotParams,
    response=SnapshotOwner,
    tag=Tag.VOLUMES,
    summary="Show which app a snapshot belongs to",
    errors=(NotFound, Unavailable),
    guarded=False,  # of the apps that the token may read
)

LIST_ORG_VOLUMES = Unary(
    name="list_org_volumes",
    method="GET",
    path="/v1/orgs/{org_slug}/volumes",
    params=OrgParams,
    query=OrgVolumesQuery,
    response=OrgVolumes,
    tag=Tag.VOLUMES,
    summary="List an organization's volumes over all its apps",
    guarded=False,  # those of the apps that the token may read
)

VOLUME_ROUTES = (
    LIST_VOLUMES,
    CREATE_VOLUME,
    GET_VOLUME,
    UPDATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    LIST_SNAPSHOTS,
    CREATE_SNAPSHOT,
    UNDELETE_VOLUME,
    DETACH_VOLUME,
    MOVE_VOLUME,
    CREATE_BACKUP,
    GET_BACKUP,
    LIST_BACKUPS,
    FIND_SNAPSHOT,
    LIST_ORG_VOLUMES,
)
