"""Which GPUs are whose. A claim is a device's address in a machine's record, and counts for as long as the machine has
room on the node: who rests has none. Nothing else knows it, so nothing can disagree; it is chosen in the transaction
that admits the machine.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from hawker.config import MachineConfig
from hawker.config.gpu_rules import demand_of
from hawker.gpu import Gpu, assigned, choose, keep
from hawker.ids import MachineId
from hawker.record.machine import MACHINES, MachineRecord
from hawker.store.contract import Reader


def claimed_by(record: MachineRecord) -> tuple[Gpu, ...]:
    """What a machine holds now. Its record may still name what it gave back with its room."""
    return record.gpus if record.holds.memory_mib else ()


def taken(reader: Reader, but: MachineId | None = None) -> frozenset[str]:
    """The addresses of all devices that machines hold."""
    records = (record for _, record in reader.scan(MACHINES) if record.id != but)
    return frozenset(gpu.address for record in records for gpu in claimed_by(record))


def claim(
    reader: Reader, devices: Sequence[Gpu], config: MachineConfig, record: MachineRecord
) -> tuple[Gpu, ...] | dict[str, int]:
    """What a machine of this config shall hold, beside what it holds; or what is missing, as `shortfall` tells it."""
    demand, held = demand_of(config), claimed_by(record)
    if demand is None:
        return held
    others = taken(reader, but=record.id)
    chosen = choose(demand, devices, others, held)
    if chosen is not None:
        return keep(chosen, held)
    free = sum(gpu.kind == demand.kind and gpu.address not in others for gpu in devices)
    return {short_of(demand.kind): demand.count - free}


def short_of(kind: str) -> str:
    """What a shortfall calls a kind of GPU."""
    return f"gpus.{kind}"


def kept_for(record: MachineRecord, config: MachineConfig) -> tuple[Gpu, ...]:
    """What of its devices a machine keeps once an instance of this config is the only one."""
    return assigned(demand_of(config), claimed_by(record))


def counted(gpus: Iterable[Gpu]) -> dict[str, int]:
    """By kind."""
    return dict(sorted(Counter(gpu.kind for gpu in gpus).items()))
