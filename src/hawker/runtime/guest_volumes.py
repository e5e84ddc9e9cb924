"""What a driver can do about the volumes of a running machine whose own kernel has them mounted: the host must not
touch what is on them meanwhile. Every driver with `Features.disks` keeps it beside `Driver`.

`name` is that of the `VolumeDisk`. All calls raise `NotFound` for a machine without an instance or a volume that it
does not have, `WrongState` when the instance is suspended or has ended, `Unavailable` when the guest does not do it or
does not answer in time: nobody may wait for a guest for ever.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from hawker.ids import MachineId


class VolumeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a mounted file system, as the guest says: not to be believed in anything that matters."""

    block_size: int  # bytes
    blocks: int  # of the whole file system
    blocks_free: int
    blocks_avail: int  # free for users other than root


@runtime_checkable
class GuestVolumes(Protocol):
    """What only a running guest can do for its volumes."""

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        """The volume's file has this size now: let its device have it too, and then its file system. May be repeated;
        does nothing to one that is as large."""

    def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """All that was written is in the file, and nothing more is written within the block: whoever tries waits. The
        guest lets go after `timeout_s` by itself, or when this process is gone; then the block's end raises
        `Unavailable`, for the copy may be of several moments."""

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        """How full the volume's file system is now."""
