"""Volumes whose machine is suspended with its memory in a file: part of what was written is there and not yet on the
volume, so no copy of it is whole.
"""

from hawker.errors import WrongState
from hawker.ids import VolumeId
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.volume import VOLUMES
from hawker.runtime.driver import Features
from hawker.store.contract import Reader

_HELD = frozenset({State.SUSPENDING, State.SUSPENDED})


def refuse_held(reader: Reader, features: Features, volume_id: VolumeId) -> None:
    """Raises `WrongState`."""
    volume = reader.get(VOLUMES, volume_id)
    machine = None if volume is None or volume.machine is None else reader.get(MACHINES, volume.machine)
    if features.disks and machine is not None and machine.state in _HELD:
        raise WrongState(
            f"volume {volume_id} cannot be copied while machine {machine.id}, which has it, is suspended: start or "
            "stop that first"
        )
