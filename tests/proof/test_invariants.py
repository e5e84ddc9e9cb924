"""Each invariant, on a worker that keeps it and on one in which a single thing is wrong."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hawker.ids import InstanceId, MachineId
from hawker.machine import State
from hawker.node import Resources
from hawker.proof import invariants
from hawker.proof.host_state import HostState
from hawker.proof.violation import Invariant
from hawker.record.machine import BY_NAME, EVENTS, MACHINES, Network
from hawker.record.node import USED
from hawker.runtime.driver import Exit
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx

pytestmark = pytest.mark.anyio
OTHER = MachineId("ffffffffffffff")
MADE_UP = Exit(exit_code=9, exited_at=1.0)


async def broken(worker: SimWorker, apply: Callable[[Tx], None]) -> set[Invariant]:
    await worker.store.write(apply)
    return {violation.invariant for violation in invariants.of_store(worker.store)}


def seen(worker: SimWorker, host: HostState) -> set[Invariant]:
    return {violation.invariant for violation in invariants.at_rest(worker.store, host)}


async def test_a_sound_worker_keeps_them_all(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.started()
    await worker.stopped()
    assert invariants.of_store(worker.store) == [] == invariants.at_rest(worker.store, stall.seen())


async def test_suspended_machine_is_held_still_and_no_other_is(worker: SimWorker, stall: MemoryWorld) -> None:
    started, suspended = await worker.started(), await worker.started()
    await worker.suspend(suspended)
    await worker.reaches(suspended, State.SUSPENDED)
    host = stall.seen()
    assert seen(worker, host) == set()
    assert seen(worker, replace(host, suspended=frozenset())) == {Invariant.HELD}
    everything = host.suspended | {MachineId(started)}
    assert seen(worker, replace(host, suspended=everything)) == {Invariant.HELD}


async def test_memory_is_what_the_record_says_and_is_held(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.started())
    host = stall.seen()
    assert seen(worker, replace(host, limits={record.id: 64})) == {Invariant.WHOLE}
    assert seen(worker, replace(host, limits={record.id: 512})) == {Invariant.WHOLE, Invariant.CAPACITY}


async def test_the_books_are_the_sum_of_the_records(worker: SimWorker) -> None:
    await worker.started()
    wrong = Resources(shared_cpus=9)
    assert await broken(worker, lambda tx: tx.put(USED, "all", wrong)) == {Invariant.CAPACITY}


async def test_an_index_and_the_records_agree(worker: SimWorker) -> None:
    record = worker.record(await worker.started())
    assert await broken(worker, lambda tx: tx.delete(BY_NAME, f"stall/{record.name}")) == {Invariant.WHOLE}


async def test_a_record_and_its_events_are_written_together(worker: SimWorker) -> None:
    record = worker.record(await worker.started())
    lost = f"{record.id}/{record.last_event}"
    assert Invariant.WHOLE in await broken(worker, lambda tx: tx.delete(EVENTS, lost))


async def test_only_the_history_of_what_was_touched_is_read_when_asked(worker: SimWorker) -> None:
    record = worker.record(await worker.started())
    await worker.store.write(lambda tx: tx.delete(EVENTS, f"{record.id}/{record.last_event}"))
    assert invariants.of_store(worker.store, {OTHER}) == [] != invariants.of_store(worker.store, {record.id})


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        ({"running": {}}, Invariant.ONE_INSTANCE),
        ({"doubled": frozenset({OTHER})}, Invariant.ONE_INSTANCE),
        ({"instances": frozenset({OTHER})}, Invariant.NOTHING_STRAY),
        ({"directories": frozenset({OTHER})}, Invariant.NOTHING_STRAY),
        ({"networks": frozenset({OTHER})}, Invariant.NOTHING_STRAY),
        ({"strays": ("a mount",)}, Invariant.NOTHING_STRAY),
    ],
    ids=str,
)
async def test_the_host_is_what_the_records_say(
    worker: SimWorker, stall: MemoryWorld, change: dict[str, Any], invariant: Invariant
) -> None:
    await worker.started()
    assert seen(worker, replace(stall.seen(), **change)) == {invariant}


async def test_a_machine_that_is_off_has_nothing_mounted_and_holds_nothing(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    record = worker.record(await worker.stopped())
    mounted = replace(stall.seen(), mounted={record.id: InstanceId("I1")})
    assert seen(worker, mounted) == {Invariant.NOTHING_STRAY}
    holding = msgspec.structs.replace(record, holds=Resources(shared_cpus=1))
    await worker.store.write(lambda tx: tx.put(MACHINES, record.id, holding))
    assert Invariant.CAPACITY in seen(worker, stall.seen())


async def test_a_machine_does_not_rest_on_the_way(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.stopped())
    moving = msgspec.structs.replace(record, state=State.STOPPING, network=Network(private_ip="::", network_id=1))
    await worker.store.write(lambda tx: tx.put(MACHINES, record.id, moving))
    assert Invariant.WHOLE in seen(worker, stall.seen())


async def test_an_exit_is_recorded_with_its_true_code(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.started(restart={"policy": "no"}))
    stall.host.end(record.id, 3)
    await worker.reaches(record.id, State.STOPPED)
    truth = stall.seen()
    assert seen(worker, truth) == set()
    assert seen(worker, replace(truth, ended={record.id: [MADE_UP]})) == {Invariant.EXIT_ONCE}
    assert seen(worker, replace(truth, ended=None)) == set(), "where nobody knows, nothing is claimed"


async def test_an_instance_is_not_ended_by_the_worker_without_an_order(worker: SimWorker, stall: MemoryWorld) -> None:
    record = worker.record(await worker.started(restart={"policy": "no"}))
    stall.host.deliver(stall.host.ever[record.id][0], 9)
    await worker.reaches(record.id, State.STOPPED)
    assert seen(worker, stall.seen()) == {Invariant.UNDISTURBED}


async def test_made_up_exit_of_machine_lost_with_host_is_accepted(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    stall.crash()
    stall.reboot()
    async with stall.open() as worker:
        await worker.reaches(machine_id, State.STOPPED)
        assert seen(worker, stall.seen()) == set()
        assert seen(worker, replace(stall.seen(), lost={})) == {Invariant.EXIT_ONCE}
