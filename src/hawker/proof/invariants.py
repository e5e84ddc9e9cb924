"""What holds of a worker whatever happened: of its store at every moment, of store and host once it is at rest.

Written once, for crash tests, chaos and the simulator. What clients were promised is in `promises`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from hawker.config import Container, guest
from hawker.config.effective import container_restart
from hawker.config.rules import demand_of
from hawker.fsm import journal
from hawker.fsm.run import State as RunState
from hawker.gpu import assigned
from hawker.host.network_policy import PacketFilter
from hawker.ids import MachineId
from hawker.machine import SETTLED, WITH_INSTANCE, Policy, State
from hawker.netpolicy.policies import wanted
from hawker.node import Resources
from hawker.proof.deploy_checks import deploys_at_rest, of_deploys
from hawker.proof.host_state import HostState
from hawker.proof.legal_path import illegal_steps, is_resumption
from hawker.proof.violation import Invariant, Violation
from hawker.proof.volume_checks import held_by_volumes, of_snapshots, of_volumes, snapshots_at_rest, volumes_at_rest
from hawker.record.machine import (
    BY_APP,
    BY_FIRST_ID,
    BY_IPV4,
    BY_NAME,
    BY_ORDER,
    DESTROYED,
    EVENTS,
    MACHINES,
    EventRecord,
    MachineKey,
    MachineRecord,
    claimed_by,
    id_key,
)
from hawker.record.move import MOVED, held_by_incoming
from hawker.record.node import USED
from hawker.runtime.driver import Exit, ProcessPhase, ProcessState
from hawker.store.contract import Bucket, Reader
from hawker.worker import capacity
from hawker.worker.table import EVENTS_KEPT

_RUNS = (ProcessPhase.STARTING, ProcessPhase.RUNNING)


# What holds of the containers of a machine at rest: they came in the order in which they depend on each other, none
# ran more often than its policy has it, and a machine of which none runs is not started. Pure; yields sentences.


def wrong_containers(record: MachineRecord, states: Sequence[ProcessState]) -> Iterator[str]:
    """What is wrong in a started machine; `states` are those of its instance."""
    containers = record.config.containers or ()
    if [state.name for state in states] != [each.name for each in containers]:
        yield f"has the containers {[each.name for each in containers]}, and {[state.name for state in states]} run"
        return
    found = {state.name: state for state in states}
    if not any(state.state in _RUNS for state in states):
        yield "is started, and none of its containers runs"
    for each in containers:
        yield from _wrong(each, found)


def _wrong(container: Container, found: dict[str, ProcessState]) -> Iterator[str]:
    state = found[container.name or ""]
    policy, _ = container_restart(container)
    if policy is Policy.NO and state.run > 1:
        yield f"container {state.name} had {state.run} runs, and is never to be started again"
    for need in container.depends_on or ():
        other = found[need.name or ""]
        ended_well = other.exit is not None and other.exit.exit_code == 0
        if state.run > 0 and (other.run == 0 or (need.condition == "exited_successfully" and not ended_well)):
            yield f"container {state.name} was started before {other.name} was {need.condition or 'started'}"


# What holds of GPUs, whatever happened: no device is two machines' at once, and who runs has what it asks for.


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


def of_store(reader: Reader, touched: Collection[MachineId] | None = None) -> list[Violation]:
    """At every moment between two transactions. With `touched`, only the history of these machines is read."""
    machines, gone = _records(reader, MACHINES), _records(reader, DESTROYED)
    read = [record for record in (*machines, *gone) if touched is None or record.id in touched]
    return [
        *_capacity(reader, machines),
        *of_gpus(machines),
        *_indexes(reader, machines, gone),
        *of_volumes(reader),
        *of_snapshots(reader),
        *of_deploys(reader),
        *(found for record in read for found in _history(reader, record)),
    ]


def at_rest(reader: Reader, host: HostState) -> list[Violation]:
    """When nothing is under way: what runs is what the records say, and nothing else is on the host."""
    machines, gone = _records(reader, MACHINES), _records(reader, DESTROYED)
    opened = list(journal.open_runs(reader))
    delayed = {run.resource.id for run in opened if run.state is RunState.DELAYED}
    return [
        *of_store(reader),
        *(Violation(Invariant.WHOLE, run.resource.id, f"run {run.id} of {run.flow} is {run.state.value}")
          for run in opened if run.state is not RunState.DELAYED),
        *(found for record in machines if record.id not in delayed for found in _rest(record, host)),
        *_instances(machines, host),
        *_strays(machines, host),
        *gpus_at_rest(machines, host),
        *volumes_at_rest(reader, host, delayed),
        *snapshots_at_rest(reader, host),
        *deploys_at_rest(reader, delayed),
        *_containers(machines, host),
        *_memories(host),
        *(found for record in (*machines, *gone) for found in _exits(reader, record, host)),
    ]  # fmt: skip


def _records(reader: Reader, bucket: Bucket[MachineRecord]) -> list[MachineRecord]:
    return [record for _, record in reader.scan(bucket)]


# The store by itself.


def _capacity(reader: Reader, machines: Sequence[MachineRecord]) -> Iterator[Violation]:
    total = held_by_volumes(reader).plus(held_by_incoming(reader))
    for record in machines:
        total = total.plus(record.holds)
    used = reader.get(USED, "all") or Resources()
    if used != total:
        yield Violation(Invariant.CAPACITY, "USED", f"{used} is not the sum {total}")


def _indexes(reader: Reader, machines: Sequence[MachineRecord], gone: Sequence[MachineRecord]) -> Iterator[Violation]:
    for machine_id in {record.id for record in machines} & {record.id for record in gone}:
        yield Violation(Invariant.WHOLE, machine_id, "is both there and destroyed")
    ordered = [record for record in (*machines, *gone) if record.order]
    expected: dict[Bucket[MachineKey], dict[str, MachineId]] = {
        BY_APP: {f"{record.app}/{record.id}": record.id for record in machines},
        BY_NAME: {f"{record.app}/{record.name}": record.id for record in machines},
        BY_IPV4: {record.network.ipv4: record.id for record in machines if record.network.ipv4},
        BY_FIRST_ID: {id_key(record.first_id): record.id for record in machines if record.first_id is not None},
        BY_ORDER: {f"{record.app}/{record.order}": record.id for record in ordered},
    }
    for bucket, recorded in expected.items():
        found = {key: pointer.id for key, pointer in reader.scan(bucket)}
        if bucket is BY_ORDER:  # of a machine that moved its order's name stays, so that it is not filled again
            found = {key: each for key, each in found.items() if reader.get(MOVED, each) is None or key in recorded}
        for key in sorted(found.keys() | recorded.keys()):
            if found.get(key) != recorded.get(key):
                what = f"{bucket.name} has {found.get(key)} and the records {recorded.get(key)}"
                yield Violation(Invariant.WHOLE, key, what)


def _history(reader: Reader, record: MachineRecord) -> Iterator[Violation]:
    events = _events(reader, record)
    if record.events != len(events) or not events or record.last_event != events[-1].id:
        what = f"counts {record.events} events to {record.last_event}; there are {len(events)}"
        yield Violation(Invariant.WHOLE, record.id, what)
    for what in illegal_steps(events, whole=len(events) < EVENTS_KEPT):
        yield Violation(Invariant.LEGAL_PATH, record.id, what)


def _events(reader: Reader, record: MachineRecord) -> list[EventRecord]:
    return [event for _, event in reader.scan(EVENTS, f"{record.id}/")]


# Store and host.


def _rest(record: MachineRecord, host: HostState) -> Iterator[Violation]:
    """What is wrong with a machine at which nothing is under way and nothing will be."""
    if record.state not in SETTLED:
        yield Violation(Invariant.WHOLE, record.id, f"is {record.state.value} and nothing is at it")
    if record.previous is not None:
        yield Violation(Invariant.WHOLE, record.id, "still has a version to fall back to")
    if record.state in WITH_INSTANCE:
        if record.holds.memory_mib == 0:
            yield Violation(Invariant.CAPACITY, record.id, f"is {record.state.value} and holds no memory")
        return
    if record.holds != capacity.at_rest(record):
        yield Violation(Invariant.CAPACITY, record.id, f"is {record.state.value} and holds {record.holds}")
    if record.awaited is not None:
        yield Violation(Invariant.WHOLE, record.id, f"is {record.state.value} and awaits {record.awaited}")
    if record.id in host.mounted:
        yield Violation(Invariant.NOTHING_STRAY, record.id, f"is {record.state.value} and its rootfs is mounted")


def _instances(machines: Sequence[MachineRecord], host: HostState) -> Iterator[Violation]:
    for record in machines:
        runs = record.running is not None and record.running.exit is None
        recorded = record.running.instance_id if record.running is not None and runs else None
        if runs != (record.state in WITH_INSTANCE) and record.state in SETTLED:
            yield Violation(Invariant.WHOLE, record.id, f"is {record.state.value}, and its instance is {recorded}")
        if host.running.get(record.id) != recorded:
            what = f"{host.running.get(record.id)} runs and the record says {recorded}"
            yield Violation(Invariant.ONE_INSTANCE, record.id, what)
        if runs and record.state in SETTLED and (record.state is State.SUSPENDED) != (record.id in host.suspended):
            still = "held still" if record.id in host.suspended else "running"
            yield Violation(Invariant.HELD, record.id, f"is {record.state.value}, and its instance is {still}")
        yield from _memory(record, host)
        if recorded is not None and host.mounted and host.mounted.get(record.id) != recorded:
            what = f"{recorded} runs and the rootfs of {host.mounted.get(record.id)} is mounted"
            yield Violation(Invariant.WHOLE, record.id, what)
    for machine_id in sorted(host.doubled):
        yield Violation(Invariant.ONE_INSTANCE, machine_id, "was launched beside itself")


def _memory(record: MachineRecord, host: HostState) -> Iterator[Violation]:
    """It has what the record says, and holds no less."""
    limit_mib = host.limits.get(record.id)
    if limit_mib is None or record.running is None or record.state not in WITH_INSTANCE:
        return
    recorded_mib = record.running.memory_mib or guest(record.config).memory_mb
    if limit_mib != recorded_mib:
        yield Violation(Invariant.WHOLE, record.id, f"may have {limit_mib} MiB and the record says {recorded_mib}")
    if record.holds.memory_mib < limit_mib:
        what = f"may have {limit_mib} MiB and holds {record.holds.memory_mib}"
        yield Violation(Invariant.CAPACITY, record.id, what)


def _containers(machines: Sequence[MachineRecord], host: HostState) -> Iterator[Violation]:
    for record in machines:
        states = host.processes.get(record.id)
        if states is not None and record.state is State.STARTED:
            yield from (Violation(Invariant.WHOLE, record.id, what) for what in wrong_containers(record, states))


def _memories(host: HostState) -> Iterator[Violation]:
    """A snapshot of an instance's memory is there for just as long as nothing else has it: what goes on twice from one
    would write to the same disks."""
    if host.memories is None:
        return
    for machine_id in sorted(host.memories & (host.running.keys() - host.suspended)):
        yield Violation(Invariant.HELD, machine_id, "runs, and a snapshot of its memory is still there")
    for machine_id in sorted(host.suspended - host.memories):
        yield Violation(Invariant.HELD, machine_id, "is suspended, and there is no snapshot of its memory")
    for machine_id in sorted(host.memories - host.running.keys()):
        yield Violation(Invariant.NOTHING_STRAY, machine_id, "has ended, and a snapshot of its memory is there")


def _strays(machines: Sequence[MachineRecord], host: HostState) -> Iterator[Violation]:
    known = {record.id for record in machines}
    kinds = {
        "instance": host.instances | host.running.keys(),
        "directory": host.directories | host.mounted.keys(),
        "network": host.networks,
    }
    for kind, found in kinds.items():
        for machine_id in sorted(found - known):
            yield Violation(Invariant.NOTHING_STRAY, machine_id, f"its {kind} is there and no record")
    for stray in host.strays:
        yield Violation(Invariant.NOTHING_STRAY, "host", stray)


def _exits(reader: Reader, record: MachineRecord, host: HostState) -> Iterator[Violation]:
    """Every start has its exit, recorded once, and what is recorded is what the host says."""
    events = _events(reader, record)
    if len(events) >= EVENTS_KEPT:
        return
    ended = [event.detail for event in events if event.detail is not None and event.detail.exit is not None]
    told = [detail.exit for detail in ended if detail.exit is not None]
    yield from _untrue(record.id, told, host)
    for detail in ended:
        if not detail.requested_stop and detail.exit in host.felled:
            yield Violation(Invariant.UNDISTURBED, record.id, f"{detail.exit} was the worker's own doing, by no order")
    starts = sum((event.type, event.status) == ("start", "started") and not is_resumption(event) for event in events)
    runs = record.running is not None and record.running.exit is None
    if starts > len(told) + runs:
        yield Violation(Invariant.EXIT_ONCE, record.id, f"was started {starts} times and ended {len(told)} times")


def _untrue(machine_id: MachineId, told: Sequence[Exit], host: HostState) -> Iterator[Violation]:
    """The worker can only say of an instance that was lost with its host that it is gone."""
    if host.ended is None:
        return
    left, lost = list(host.ended.get(machine_id, ())), host.lost.get(machine_id, 0)
    for exit in told:
        if exit in left:
            left.remove(exit)
        elif exit.reason and lost > 0:
            lost -= 1
        else:
            truth = list(host.ended.get(machine_id, ()))
            yield Violation(Invariant.EXIT_ONCE, machine_id, f"{exit} is recorded, and the host knows {truth}")


# What holds of network policies at rest: what the host enforces is what the records say, for every machine.


def policies_at_rest(reader: Reader, standing: Sequence[PacketFilter]) -> Iterator[Violation]:
    """Only of a node that compares host and store: it may be what mends the last of it."""
    promised, there = {each.machine_id: each for each in wanted(reader)}, {each.machine_id: each for each in standing}
    for machine_id in sorted(promised.keys() | there.keys()):
        if promised.get(machine_id) != there.get(machine_id):
            what = f"policies want {promised.get(machine_id)}, in force is {there.get(machine_id)}"
            yield Violation(Invariant.ENFORCED, machine_id, what)
