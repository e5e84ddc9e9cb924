"""Each invariant of volumes, on a worker that keeps it and on one in which a single thing is wrong."""

import msgspec
import pytest
from msgspec.structs import replace

from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.proof import invariants
from hawker.proof.violation import Invariant
from hawker.proof.volume_checks import VolumePromises, held_by_volumes, of_volumes, volumes_at_rest
from hawker.record.volume import VOLUMES, VOLUMES_BY_APP
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx

pytestmark = pytest.mark.anyio
MOUNT = [{"name": "data", "path": "/data"}]
OTHER = VolumeId("vol_ffffffffffffffff")


@pytest.fixture
async def volume(worker: SimWorker) -> VolumeId:
    """Of a machine that runs."""
    made = await worker.volume("data", size_gb=1)
    await worker.started(mounts=MOUNT)
    return VolumeId(made.id)


def broken(worker: SimWorker) -> set[Invariant]:
    return {violation.invariant for violation in of_volumes(worker.store)}


async def test_a_sound_worker_keeps_them_all(worker: SimWorker, stall: MemoryWorld, volume: VolumeId) -> None:
    assert broken(worker) == set() and held_by_volumes(worker.store) == Resources(disk_mib=1024)
    assert invariants.at_rest(worker.store, stall.seen()) == []


async def test_records_of_volume_and_machine_agree(worker: SimWorker, volume: VolumeId) -> None:
    def misattach(tx: Tx) -> None:
        record = tx.get(VOLUMES, volume)
        assert record is not None
        tx.put(VOLUMES, volume, msgspec.structs.replace(record, machine=MachineId("ffffffffffffff")))

    await worker.store.write(misattach)
    assert broken(worker) == {Invariant.ONE_MACHINE}


async def test_the_index_and_the_records_agree(worker: SimWorker, volume: VolumeId) -> None:
    await worker.store.write(lambda tx: tx.delete(VOLUMES_BY_APP, f"stall/{volume}"))
    assert broken(worker) == {Invariant.WHOLE}


async def test_a_host_that_is_not_what_the_records_say_is_found(
    worker: SimWorker, stall: MemoryWorld, volume: VolumeId
) -> None:
    host = stall.seen()
    machine_id = next(iter(host.uses))
    wrong = {
        Invariant.KEPT: [
            replace(host, volumes={}),
            replace(host, volumes={volume: 5}),
            replace(host, volumes_remade=frozenset({volume})),
            replace(host, uses={machine_id: OTHER}),
        ],
        Invariant.NOTHING_STRAY: [
            replace(host, volumes={volume: 1 << 30, OTHER: 1}),
            replace(host, volumes_mounted=frozenset({volume, OTHER})),
        ],
        Invariant.WHOLE: [replace(host, volumes_mounted=frozenset())],
        Invariant.ONE_MACHINE: [replace(host, uses={machine_id: volume, MachineId("ffffffffffffff"): volume})],
    }
    for invariant, hosts in wrong.items():
        for each in hosts:
            assert {found.invariant for found in volumes_at_rest(worker.store, each, ())} == {invariant}


async def test_host_state_without_volumes_has_no_finding(
    worker: SimWorker, stall: MemoryWorld, volume: VolumeId
) -> None:
    assert list(volumes_at_rest(worker.store, replace(stall.seen(), volumes=None), ())) == []


async def test_an_acknowledged_size_is_kept_and_an_unanswered_one_may_be(worker: SimWorker) -> None:
    made = VolumeId((await worker.volume("data", size_gb=2)).id)
    promises = VolumePromises()
    promises.created(made, 2)
    assert list(promises.broken(worker.store)) == []
    promises.ask_size(made, 4)
    await worker.extend_volume(made, 3)
    assert list(promises.broken(worker.store)) == []
    promises.extended(made, 4)
    assert {found.invariant for found in promises.broken(worker.store)} == {Invariant.KEPT}


async def test_a_volume_is_there_unless_its_end_was_asked_for(worker: SimWorker) -> None:
    made = VolumeId((await worker.volume("data", size_gb=1)).id)
    promises = VolumePromises()
    promises.created(made, 1)
    await worker.delete_volume(made)
    assert {found.invariant for found in promises.broken(worker.store)} == {Invariant.KEPT}
    turn = promises.ask_end(made)
    assert list(promises.broken(worker.store)) == []
    promises.let_go(made, turn)
    assert list(promises.broken(worker.store)) == []


async def test_a_volume_of_a_machine_that_is_off_is_not_mounted(
    worker: SimWorker, stall: MemoryWorld, volume: VolumeId
) -> None:
    record = worker.store.get(VOLUMES, volume)
    assert record is not None and record.machine is not None
    await worker.stop(record.machine)
    await worker.reaches(record.machine, State.STOPPED)
    host = replace(stall.seen(), volumes_mounted=frozenset({volume}))
    assert {found.invariant for found in volumes_at_rest(worker.store, host, ())} == {Invariant.NOTHING_STRAY}
    assert list(volumes_at_rest(worker.store, host, {record.machine})) == []
