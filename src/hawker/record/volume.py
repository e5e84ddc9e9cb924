"""What a worker stores of volumes and their snapshots. The host has a file for each; the record says what it is for.

Records tolerate unknown fields, so that an older worker reads what a newer one wrote.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

import msgspec

from hawker.fsm.contract import Resource
from hawker.ids import AppName, MachineId, NodeId, SnapshotId, VolumeId
from hawker.node import Resources
from hawker.store.contract import Bucket

MIB_PER_GB = 1024
GB = 1 << 30


class VolumeState(StrEnum):
    """Where a volume is in its life; the words are the Machines API's."""

    CREATING = "creating"
    RESTORING = "restoring"  # being made from a snapshot
    ENABLING_REMOTE_EXPORT = "enabling_remote_export"  # a fork whose source is being held, or that is given up
    HYDRATING = "hydrating"  # a fork that can be mounted while it is made as large as ordered
    CREATED = "created"
    EXTENDING = "extending"
    SCHEDULING_DESTROY = "scheduling_destroy"
    PENDING_DESTROY = "pending_destroy"  # until `destroy_at`; can be undeleted
    DESTROYED = "destroyed"  # its file is being removed, or is gone


MADE = frozenset({VolumeState.HYDRATING, VolumeState.CREATED, VolumeState.EXTENDING})
"""Its file is whole: it can be mounted."""

IN_MAKING = frozenset({VolumeState.CREATING, VolumeState.RESTORING, VolumeState.ENABLING_REMOTE_EXPORT})
"""Will be whole, or destroyed. A machine may be created with it already, and waits for it."""

GOING = frozenset({VolumeState.SCHEDULING_DESTROY, VolumeState.PENDING_DESTROY, VolumeState.DESTROYED})
"""Nobody may begin to use it."""


class Fstype(StrEnum):
    EXT4 = "ext4"
    RAW = "raw"  # blocks without a filesystem


class SealedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key that encrypts a volume, under the node's own key. `volume` is the one that it was made for: its copies
    have the same bytes, and so the same key."""

    volume: VolumeId
    sealed: bytes  # the volume's key under the vault's key


class DamageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What of a volume's file is zeros, because the disk of a node could not read it when the volume moved from there.
    Until somebody accepts it, no machine starts with the volume, and nothing is made from it; the mount that comes next
    repairs its filesystem. `files` are those that lost something, by their paths in the volume; `unnamed` says why
    there may be more, is empty when there are not, and None until they were looked for. Times: Unix seconds."""

    node: NodeId  # id of the node whose disk could not read the bytes
    lost: tuple[tuple[int, int], ...]  # ranges of bytes, in order: offset and count; at least what is zeros
    noted_at: float
    files: tuple[str, ...] = ()
    unnamed: str | None = None
    accepted_at: float | None = None  # when a client accepted the loss; None: nobody has yet
    repaired_at: float | None = None  # when a mount repaired the filesystem after that; None: not yet

    @property
    def lost_bytes(self) -> int:
        return sum(count for _, count in self.lost)


class VolumeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One volume. `size_gb` is what is promised and what it holds of the node's disk; the file on the host has
    `made_gb`, which an extension brings up to it; its filesystem is `behind` when it could not grow in use, and grows
    at the next mount. `machine` is the one that it is attached to: from that machine's order until it is gone.
    `lent_by` is the stopped machine that it was detached from, until that machine takes it back or it changes apps.
    `source_volume`, `source_snapshot` or `source_backup` is what it is made from. Times are Unix seconds."""

    id: VolumeId
    app: AppName
    name: str  # name of the volume, which need not be unique in the app: a config asks for any of the name
    region: str  # region of the volume's node
    state: VolumeState
    size_gb: int
    made_gb: int = 0
    unused: bool = False  # the volume is a fork that no machine has had since it was filled
    behind: bool = False
    fstype: Fstype = Fstype.EXT4
    encrypted: bool = False  # its file is encrypted, and `key` opens it
    snapshot_retention: int = 5  # days for which a snapshot of the volume is kept, 1 to 60
    auto_backup: bool = True  # the schedules take snapshots and backups of it
    machine: MachineId | None = None
    lent_by: MachineId | None = None
    source_volume: VolumeId | None = None
    source_snapshot: SnapshotId | None = None
    source_backup: str | None = None  # full name of a backup: ORG/APP/VOLUME/TIME
    destroy_at: float | None = None
    backed_up_at: float | None = None  # when the schedule last began a snapshot; None: never
    key: SealedKey | None = None  # key of an encrypted volume; None for another one
    guest_written: bool = False  # a guest had the blocks themselves, or those of what it was made from: never mounted
    generation: int = 1  # how many nodes have owned the volume, 1 or more
    damage: DamageRecord | None = None  # damage of the volume's file, also after it was accepted; None for a whole one
    created_at: float
    updated_at: float

    @property
    def damaged(self) -> bool:
        """Whether nobody may use it, because nobody has accepted what is lost of it."""
        return self.damage is not None and self.damage.accepted_at is None

    @property
    def wants_repair(self) -> bool:
        """Whether the next mount repairs its filesystem, whatever that costs of it."""
        return self.damage is not None and not self.damaged and self.damage.repaired_at is None

    @property
    def holds(self) -> Resources:
        """What it takes of the node until its file is gone."""
        return Resources(disk_mib=self.size_gb * MIB_PER_GB)


class Named(Protocol):
    """A volume, as a record or as a node answers it."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...


def count_beside(there: Iterable[Named], name: str | None) -> int:
    """How many are of this name, or of any, and not on their way out: a volume in a zone of its own is on a host that
    has none of them."""
    return sum(name in (None, each.name) and each.state not in GOING for each in there)


class SnapshotStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    CREATED = "created"
    FAILED = "failed"  # there is nothing of it but this record, and its run that says why


IN_TAKING = frozenset({SnapshotStatus.WAITING, SnapshotStatus.RUNNING})


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a volume held at `created_at`. `size` is what it takes of the host's disk, in bytes; `fstype` and
    `encrypted` are the volume's then. Kept for `retention_days`, also over the volume's end, until `kept_until`."""

    id: SnapshotId
    volume: VolumeId
    app: AppName
    status: SnapshotStatus
    volume_gb: int  # size of the volume's file at that moment, in GiB
    size: int = 0
    fstype: Fstype = Fstype.EXT4
    encrypted: bool = False
    automatic: bool = False  # the schedule took the snapshot, and no client
    key: SealedKey | None = None
    guest_written: bool = False  # a guest had the volume's blocks themselves: see `VolumeRecord`
    retention_days: int
    kept_until: float
    created_at: float


class VolumeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A pointer in an index: to a volume by app."""

    id: VolumeId


class SnapshotKey(msgspec.Struct, frozen=True, kw_only=True):
    """A pointer in an index: to a snapshot by its volume."""

    id: SnapshotId


VOLUMES = Bucket("volumes", VolumeRecord)  # volume id; also those that are pending destroy
GONE_VOLUMES = Bucket("volumes_gone", VolumeRecord)  # volume id; only these files may be removed without asking
VOLUMES_BY_APP = Bucket("volumes_by_app", VolumeKey)  # app/id; only of those in VOLUMES
SNAPSHOTS = Bucket("snapshots", SnapshotRecord)  # snapshot id
GONE_SNAPSHOTS = Bucket("snapshots_gone", SnapshotRecord)  # snapshot id; until what there is of the file is removed
SNAPSHOTS_BY_VOLUME = Bucket("snapshots_by_volume", SnapshotKey)  # volume id/snapshot id


def backup_resource(volume_id: VolumeId) -> Resource:
    """A volume's backups, one after the other. Of its own kind: the volume can be changed meanwhile."""
    return Resource(kind="backup", id=volume_id)


def volume_resource(volume_id: VolumeId) -> Resource:
    return Resource(kind="volume", id=volume_id)
