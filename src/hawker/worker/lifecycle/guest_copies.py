"""Copies of volumes that guests have: a running guest holds its file system still meanwhile. That of a suspended one is
not copied: what the guest had not written yet is in its snapshot, and would be missing from the copy without a word.
"""

from collections.abc import Callable
from pathlib import Path

from hawker.errors import NotFound, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.host.sparse import draft
from hawker.ids import MachineId, VolumeId
from hawker.worker.lifecycle.copies import LONGEST_FREEZE_S, HostCopies, written_at
from hawker.worker.lifecycle.guest_environment import volume_name
from hawker.worker.lifecycle.volume_use import Guests, Use, VolumeUse


class GuestCopies(HostCopies):
    """Keeps `copies.Copies`."""

    def __init__(
        self, directory: Path, file_of: Callable[[VolumeId], Path], guests: Guests, use: VolumeUse, floor_bytes: int = 0
    ) -> None:
        super().__init__(directory, file_of, file_of, floor_bytes)
        self._guests = guests
        self._use = use

    async def mend(self, mounted: frozenset[VolumeId]) -> None:
        """A guest lets go by itself when nobody holds it still any more."""

    async def _draft_still(self, volume_id: VolumeId, source: Path, drafted: Path) -> bool:
        hold = await self._use.of(volume_id)
        match hold.use:
            case Use.HELD:
                raise WrongState(
                    f"machine {hold.machine_id}, which has volume {volume_id}, is suspended: start it first"
                )
            case Use.CHANGING:
                raise Unavailable(f"the machine of volume {volume_id} is being started or stopped")
            case Use.GUEST:
                assert hold.machine_id is not None, "a guest is of a machine"
                await self._draft_frozen(hold.machine_id, volume_id, source, drafted)
                return True
            case Use.FREE:
                before = written_at(source)
                await draft(source, drafted)
                return written_at(source) == before and (await self._use.of(volume_id)).use is Use.FREE

    async def _draft_frozen(self, machine_id: MachineId, volume_id: VolumeId, source: Path, drafted: Path) -> None:
        try:
            async with self._guests.freeze_volume(machine_id, volume_name(volume_id), LONGEST_FREEZE_S):
                inside("frozen")
                await draft(source, drafted)
        except (NotFound, WrongState) as error:
            raise Unavailable(f"the guest that had volume {volume_id} has just ended") from error
