"""From a request for a volume to its first record: names, sizes and how it is kept. Whether there is room is asked when
it is created.
"""

import re

from hawker.api.bounds import MAX_RETENTION_DAYS, MIN_RETENTION_DAYS
from hawker.api.contract.volume import CreateVolumeRequest
from hawker.clock import Clock
from hawker.errors import Unprocessable
from hawker.ids import AppName, new_volume_id
from hawker.record.volume import Fstype, VolumeRecord, VolumeState

DEFAULT_GB = 3
DEFAULT_RETENTION_DAYS = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def new_volume(
    clock: Clock, app: AppName, region: str, order: CreateVolumeRequest, *, encrypted: bool, max_gb: int
) -> VolumeRecord:
    """An empty volume. One node is one zone, so what asks for zones and hosts is left aside. Raises `Unprocessable`."""
    now, size_gb = clock.now(), DEFAULT_GB if order.size_gb is None else order.size_gb
    check_size(size_gb, max_gb)
    if order.fstype is not None and Fstype(order.fstype) is Fstype.RAW:
        raise Unprocessable("fstype: raw volumes are not served by this node's driver: its machines mount filesystems")
    days = DEFAULT_RETENTION_DAYS if order.snapshot_retention is None else order.snapshot_retention
    check_retention(days)
    return VolumeRecord(
        id=new_volume_id(clock),
        app=app,
        name=volume_name(order.name),
        region=region,
        state=VolumeState.CREATING,
        size_gb=size_gb,
        encrypted=encrypted,
        snapshot_retention=days,
        auto_backup=order.auto_backup_enabled is not False,
        created_at=now,
        updated_at=now,
    )


def volume_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Unprocessable(
            f"name: {text!r:.80} is not a volume's name: use up to 63 letters, digits, dashes and underscores"
        )
    return text


def check_size(size_gb: int, max_gb: int) -> None:
    if not 1 <= size_gb <= max_gb:
        raise Unprocessable(f"size_gb must be between 1 and {max_gb}, not {size_gb}")


def check_retention(days: int) -> None:
    if not MIN_RETENTION_DAYS <= days <= MAX_RETENTION_DAYS:
        raise Unprocessable(
            f"snapshot_retention must be between {MIN_RETENTION_DAYS} and {MAX_RETENTION_DAYS} days, not {days}"
        )
