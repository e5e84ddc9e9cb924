"""What holds of GPUs, whatever happened: no device is two machines' at once, and who runs has what it asks for."""

from collections.abc import Iterable, Iterator

from hawker.config.gpu_rules import demand_of
from hawker.gpu import assigned
from hawker.machine import WITH_INSTANCE, State
from hawker.proof.host_state import HostState
from hawker.proof.violation import Invariant, Violation
from hawker.record.gpu_claim import claimed_by
from hawker.record.machine import MachineRecord


def of_gpus(machines: Iterable[MachineRecord]) -> Iterator[Violation]:
    """At every moment between two transactions."""
    owners: dict[str, str] = {}
    for record in machines:
        claimed = claimed_by(record)
        for gpu in claimed:
            first = owners.setdefault(gpu.address, record.id)
            if first != record.id:
                what = f"has GPU {gpu.address}, which machine {first} has too"
                yield Violation(Invariant.CAPACITY, record.id, what)
        demand = demand_of(record.config)
        if record.state is State.STARTED and demand is not None and len(assigned(demand, claimed)) < demand.count:
            what = f"is started with {len(claimed)} GPUs and asks for {demand.count} {demand.kind}"
            yield Violation(Invariant.CAPACITY, record.id, what)
        if len({gpu.address for gpu in claimed}) < len(claimed):
            yield Violation(Invariant.CAPACITY, record.id, "has a GPU twice")


def gpus_at_rest(machines: Iterable[MachineRecord], host: HostState) -> Iterator[Violation]:
    """What runs has the devices that are its machine's, and no others."""
    for record in machines:
        given = set(host.gpus.get(record.id, ()))
        claimed = {gpu.address for gpu in assigned(demand_of(record.config), claimed_by(record))}
        if given and given != claimed and record.state in WITH_INSTANCE:
            what = f"runs with the GPUs {sorted(given)}, and has {sorted(claimed)}"
            yield Violation(Invariant.CAPACITY, record.id, what)
