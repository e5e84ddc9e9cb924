"""What a machine holds of its node while it rests: room, and what it has written. Pure."""

from hawker.config import Persist, persistence
from hawker.node import Resources
from hawker.record.machine import MachineRecord


def at_rest(record: MachineRecord) -> Resources:
    """Of one that is off: nothing, but the disk that its writable layer takes if that is kept."""
    if persistence(record.config) is Persist.NEVER:
        return Resources()
    return Resources(disk_mib=record.holds.disk_mib)


def kept_layer(record: MachineRecord | None) -> str | None:
    """The name of the writable layer that outlives an instance; None where none does."""
    if record is None:
        return None
    match persistence(record.config):
        case Persist.NEVER:
            return None
        case Persist.RESTART:
            return f"kept-{record.version}"
        case Persist.ALWAYS:
            return "kept"
