"""What holds of a worker whatever happened: always of its store, and of store and host together once it is at rest."""

from itertools import pairwise

from hawker.fsm import journal
from hawker.fsm.run import State as RunState
from hawker.ids import MachineId
from hawker.machine import SETTLED, State
from hawker.node import Resources
from hawker.store.contract import Bucket, Reader
from hawker.worker.records import (
    BY_APP,
    BY_IPV4,
    BY_NAME,
    BY_ORDER,
    DESTROYED,
    EVENTS,
    MACHINES,
    USED,
    MachineKey,
    MachineRecord,
)
from tests.worker.stall import Stall


def check_store(reader: Reader) -> None:
    """At every moment between two transactions."""
    machines = [record for _, record in reader.scan(MACHINES)]
    total = Resources()
    for record in machines:
        total = total.plus(record.holds)
        _check_events(reader, record)
    assert (reader.get(USED, "all") or Resources()) == total, "USED is the sum of what is held"
    _check_indexes(reader, machines)


def _check_indexes(reader: Reader, machines: list[MachineRecord]) -> None:
    gone = [record for _, record in reader.scan(DESTROYED)]
    assert not {record.id for record in machines} & {record.id for record in gone}
    assert _ids(reader, BY_APP) == {f"{record.app}/{record.id}": record.id for record in machines}
    assert _ids(reader, BY_NAME) == {f"{record.app}/{record.name}": record.id for record in machines}
    assert _ids(reader, BY_IPV4) == {record.network.ipv4: record.id for record in machines if record.network.ipv4}
    ordered = [record for record in (*machines, *gone) if record.order]
    assert _ids(reader, BY_ORDER) == {f"{record.app}/{record.order}": record.id for record in ordered}


def _ids(reader: Reader, bucket: Bucket[MachineKey]) -> dict[str, MachineId]:
    return {key: pointer.id for key, pointer in reader.scan(bucket)}


def _check_events(reader: Reader, record: MachineRecord) -> None:
    events = [event for _, event in reader.scan(EVENTS, f"{record.id}/")]
    assert all(earlier.id < later.id and earlier.at <= later.at for earlier, later in pairwise(events))
    assert record.events == len(events) and record.last_event == events[-1].id


def check_at_rest(stall: Stall) -> None:
    """When nothing is under way: what runs is what the records say, and nothing else is on the host."""
    check_store(stall.store)
    waiting = {run.resource.id for run in journal.open_runs(stall.store) if run.state is RunState.DELAYED}
    stuck = [run for run in journal.open_runs(stall.store) if run.state is not RunState.DELAYED]
    assert stuck == [], "every run has ended"
    machines = {record.id: record for _, record in stall.store.scan(MACHINES)}
    for record in machines.values():
        assert record.state in SETTLED or record.id in waiting, f"{record.id} is {record.state} and nothing is at it"
        assert record.previous is None
        if record.state is not State.STARTED and record.id not in waiting:
            assert record.holds == Resources() and record.awaited is None
            assert record.id not in stall.rootfs.mounted
    running = {
        record.id: record.running.instance_id
        for record in machines.values()
        if record.running is not None and record.running.exit is None
    }
    assert running == {record.id: running.get(record.id) for record in machines.values() if record.state == "started"}
    assert stall.host.running() == running, "what runs is what the records say"
    assert {key: instance for key, (instance, _) in stall.rootfs.mounted.items() if key in running} == running
    check_nothing_stray(stall)


def check_nothing_stray(stall: Stall) -> None:
    machines = {record.id for _, record in stall.store.scan(MACHINES)}
    assert set(stall.host.machines()) <= machines, "stray instances"
    assert stall.rootfs.directories | set(stall.rootfs.mounted) <= machines, "stray directories"
    assert set(stall.networks.plugged) <= machines, "stray networks"
    assert stall.host.doubled == [] and all(count == 1 for count in stall.host.launched.values()), "launched twice"
    check_exits(stall)


def check_exits(stall: Stall) -> None:
    """Every start has its exit, recorded once, and what is recorded is what the host says."""
    for _, record in (*stall.store.scan(MACHINES), *stall.store.scan(DESTROYED)):
        events = [event for _, event in stall.store.scan(EVENTS, f"{record.id}/")]
        told = [event.detail.exit for event in events if event.detail is not None and event.detail.exit is not None]
        truth = [instance.exit for instance in stall.host.ever[record.id]]
        assert all(told.count(exit) <= truth.count(exit) for exit in told), f"{record.id}: {told} is not of {truth}"
        starts = sum(event.type == "start" and event.status == State.STARTED for event in events)
        runs = record.running is not None and record.running.exit is None
        assert starts <= len(told) + runs, f"{record.id} was started {starts} times and ended {len(told)} times"
