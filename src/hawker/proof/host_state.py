"""What an inspector saw on a host, real or played: the other half of what the records are compared with."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from hawker.ids import InstanceId, MachineId, SnapshotId, VolumeId
from hawker.runtime.driver import Exit, ProcessState
from hawker.value_object import ValueObject


class HostState(ValueObject, frozen=True):
    """One node at one moment. `running` and `mounted` name the instance; of those that run, `suspended` are held
    still; `limits` is the memory that each may have, in MiB, and `gpus` the addresses of its devices, where they are
    known. `ended` is how the instances of a machine truly ended, oldest first, where the inspector can know it.
    `doubled` were launched beside a running one, or twice. `strays` are things that bear the node's mark and belong to
    no machine, each as a person would name it. `snapshots` are those that have a file, None where nobody looked;
    `snapshots_retaken` were taken a second time. `memories` are machines with a snapshot of their memory, None where
    machines are not suspended so. `lost` is how many instances went with a reboot, without a trace of their end;
    `felled` are the exits that the worker made.
    """

    running: Mapping[MachineId, InstanceId]
    mounted: Mapping[MachineId, InstanceId] = msgspec.field(default_factory=dict)
    suspended: frozenset[MachineId] = frozenset()
    limits: Mapping[MachineId, int] = msgspec.field(default_factory=dict)
    gpus: Mapping[MachineId, Sequence[str]] = msgspec.field(default_factory=dict)
    instances: frozenset[MachineId] = frozenset()
    directories: frozenset[MachineId] = frozenset()
    networks: frozenset[MachineId] = frozenset()
    ended: Mapping[MachineId, Sequence[Exit]] | None = None
    doubled: frozenset[MachineId] = frozenset()
    strays: tuple[str, ...] = ()
    lost: Mapping[MachineId, int] = msgspec.field(default_factory=dict)
    felled: Collection[Exit] = ()
    processes: Mapping[MachineId, Sequence[ProcessState]] = msgspec.field(default_factory=dict)
    volumes: Mapping[VolumeId, int] | None = None
    snapshots: frozenset[SnapshotId] | None = None
    snapshots_retaken: frozenset[SnapshotId] = frozenset()
    volumes_mounted: frozenset[VolumeId] = frozenset()
    volumes_remade: frozenset[VolumeId] = frozenset()
    uses: Mapping[MachineId, VolumeId] = msgspec.field(default_factory=dict)
    memories: frozenset[MachineId] | None = None
