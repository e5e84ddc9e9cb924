"""What an inspector saw on a host, real or played: the other half of what the records are compared with."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Exit


@dataclass(frozen=True, slots=True)
class HostState:
    """Of one node, at one moment. `running` and `mounted` name the instance. `ended` is how the instances of a machine
    truly ended, oldest first, where the inspector can know it. `doubled` were launched beside a running one, or twice.
    `strays` are things that bear the node's mark and belong to no machine, each as a person would name it. `lost` is
    how many instances went with a reboot, without a trace of their end; `felled` are the exits that the worker made.
    """

    running: Mapping[MachineId, InstanceId]
    mounted: Mapping[MachineId, InstanceId] = field(default_factory=dict)
    instances: frozenset[MachineId] = frozenset()
    directories: frozenset[MachineId] = frozenset()
    networks: frozenset[MachineId] = frozenset()
    ended: Mapping[MachineId, Sequence[Exit]] | None = None
    doubled: frozenset[MachineId] = frozenset()
    strays: tuple[str, ...] = ()
    lost: Mapping[MachineId, int] = field(default_factory=dict)
    felled: Collection[Exit] = ()
