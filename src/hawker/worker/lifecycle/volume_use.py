"""Who has a volume now, where machines have kernels of their own: what the host may do with its file depends on it."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from hawker.ids import MachineId, VolumeId
from hawker.machine import OFF, State
from hawker.record.machine import MACHINES
from hawker.record.volume import VOLUMES
from hawker.runtime.driver import Inspection, Phase
from hawker.runtime.guest_volumes import GuestVolumes
from hawker.store.contract import Reader


class Guests(GuestVolumes, Protocol):
    """The part of a driver that knows about guests and their volumes."""

    async def inspect(self, machine_id: MachineId) -> Inspection: ...


class Use(Enum):
    FREE = "free"  # no kernel has it, and none will without a launch: its file is the host's
    GUEST = "guest"  # a guest has it mounted, and can be asked
    HELD = "held"  # its guest is suspended: what the file lacks is in the snapshot of the guest's memory
    CHANGING = "changing"  # its machine is being started or ended: nobody may touch it, and that is soon over


@dataclass(frozen=True, slots=True)
class Hold:
    """`machine_id` is there unless nobody's volume it is."""

    use: Use
    machine_id: MachineId | None = None


class VolumeUse:
    def __init__(self, store: Reader, guests: Guests) -> None:
        self._store = store
        self._guests = guests

    async def of(self, volume_id: VolumeId) -> Hold:
        """By host and record: an instance that the record has not heard of counts, and so does a launch to come."""
        volume = self._store.get(VOLUMES, volume_id)
        machine = None if volume is None or volume.machine is None else self._store.get(MACHINES, volume.machine)
        if machine is None:
            return Hold(Use.FREE)
        match (await self._guests.inspect(machine.id)).phase:
            case Phase.SUSPENDED:
                return Hold(Use.HELD, machine.id)
            case Phase.RUNNING if machine.state is State.STARTED:
                return Hold(Use.GUEST, machine.id)
            case Phase.RUNNING:
                return Hold(Use.CHANGING, machine.id)
        now = self._store.get(MACHINES, machine.id)
        off = now is None or now.state in OFF
        return Hold(Use.FREE if off else Use.CHANGING, machine.id)
