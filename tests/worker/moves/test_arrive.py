"""Flow `arrive`, between played hosts whose machines have kernels of their own."""

from collections.abc import AsyncIterator

import pytest

from hawker.errors import MoveUnderWay, NoDestination, WrongState
from hawker.ids import MachineId, RunId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import EVENTS
from hawker.record.move import INCOMING, MoveMode, MoveState
from hawker.record.node import used
from hawker.runtime.driver import Phase
from hawker.runtime.fake_host import FakeFault
from hawker.runtime.saved_memory import SavedBy
from hawker.sim.harness.loop import eventually
from hawker.volume.moved_files import Lost, MovedFile, StoredPiece
from hawker.worker.lifecycle import draft
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
GUESTS = 13
"""A seed whose machine has a kernel of its own."""


@pytest.fixture
async def fleet() -> AsyncIterator[PlayedFleet]:
    async with played_fleet(seed=GUESTS) as fleet:
        yield fleet


async def suspended(fleet: PlayedFleet, number: int = 0) -> int:
    """What is in its memory."""
    await fleet._clock.sleep(1)
    await fleet.worker(number).suspend(fleet.machine)
    await fleet.worker(number).reaches(fleet.machine, State.SUSPENDED)
    return heap(fleet, number)


def heap(fleet: PlayedFleet, number: int) -> int:
    return fleet.hosts[number].world.host.heaps[MachineId(fleet.machine)]


async def goes_on(fleet: PlayedFleet, number: int, memory: int) -> None:
    """With what it had in memory, as the same instance."""
    await fleet.worker(number).reaches(fleet.machine, State.SUSPENDED)
    await fleet.worker(number).start(fleet.machine)
    await fleet.worker(number).reaches(fleet.machine, State.STARTED)
    assert heap(fleet, number) >= memory and heap(fleet, number) >> 20 == memory >> 20


async def test_a_suspended_machine_goes_on_at_its_new_node_with_its_memory_and_leaves_nothing(
    fleet: PlayedFleet,
) -> None:
    memory, before = await suspended(fleet), fleet.worker(0).record(fleet.machine).running
    made = await fleet.move(0, 1)
    move = await fleet.ended(0, made.id)
    assert move.state is MoveState.DONE and move.mode is MoveMode.COLD and not move.drops_memory
    await fleet.worker(1).reaches(fleet.machine, State.SUSPENDED)
    after = fleet.worker(1).record(fleet.machine)
    assert before is not None and after.running is not None and after.running.instance_id == before.instance_id
    assert after.holds.memory_mib > 0 and fleet.hosts[0].world.host.memories == set()
    assert not any(each.startswith("exit/") for each in fleet.worker(1).events(fleet.machine))
    await goes_on(fleet, 1, memory)
    assert await fleet.settled() == []


async def test_memory_that_is_on_disk_is_not_copied_again_after_a_power_cut(
    fleet: PlayedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "_SYNCED_BYTES", 1)
    memory, files, asked = await suspended(fleet), fleet.hosts[0].world.moved_files, list[int]()
    piece = files.piece

    async def notes(file: MovedFile, offset: int, count: int, lost: Lost = None) -> StoredPiece | None:
        if file.memory:
            asked.append(offset)
        return await piece(file, offset, count, lost)

    monkeypatch.setattr(files, "piece", notes)
    move = await fleet.move(0, 1)
    await eventually(fleet._clock, lambda: len(asked) > 3, 60, 0.0005)
    await fleet.again(1, power=True)
    first = asked.copy()
    assert (await fleet.ended(0, move.id)).state is MoveState.DONE
    assert first[0] == 0 and min(asked[len(first) :]) > 0
    await goes_on(fleet, 1, memory)
    assert await fleet.settled() == []


async def test_a_machine_that_moves_suspended_is_woken_by_nobody(fleet: PlayedFleet) -> None:
    await suspended(fleet)
    fleet.hosts[1].world.moved_files.spoils = 1000
    move = await fleet.move(0, 1)
    with pytest.raises(MoveUnderWay):
        await fleet.worker(0).start(fleet.machine)
    assert (await fleet.ended(0, move.id)).state is MoveState.ABORTED
    fleet.hosts[1].world.moved_files.spoils = 0
    await goes_on(fleet, 0, heap(fleet, 0))
    assert await fleet.settled() == []


async def test_a_move_there_and_back_and_on_keeps_the_memory(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    for source, to in ((0, 1), (1, 0), (0, 2)):
        move = await fleet.move(source, to)
        assert (await fleet.ended(source, move.id)).state is MoveState.DONE
        await fleet.worker(to).reaches(fleet.machine, State.SUSPENDED)
    assert fleet.worker(2).record(fleet.machine).generation == 4
    await goes_on(fleet, 2, memory)
    assert await fleet.settled() == []


async def test_another_vmm_or_cpu_is_no_destination_and_says_why_also_in_a_dry_run(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    fleet.hosts[1].world.host.saved_by = SavedBy(vmm="fake 2", cpu_model="model 1")
    fleet.hosts[2].world.host.saved_by = SavedBy(vmm="fake 1", cpu_model="model 2")
    with pytest.raises(NoDestination, match=r"node 00000002: .*fake 1.*fake 2.*cold-start"):
        await fleet.move(0, 1, dry_run=True)
    with pytest.raises(NoDestination, match=r"fake 2.*model 2|model 2.*fake 2"):
        await fleet.move(0, None, dry_run=True)
    move = await fleet.ended(0, (await fleet.move(0, 2)).id)
    assert move.state is MoveState.ABORTED and "model 2" in move.reason and "--cold-start" in move.reason
    dropped = await fleet.ended(0, (await fleet.move(0, 2, cold_start=True)).id)
    assert dropped.state is MoveState.DONE and dropped.drops_memory
    await fleet.worker(2).start(fleet.machine)
    await fleet.worker(2).reaches(fleet.machine, State.STARTED)
    assert heap(fleet, 2) >> 20 != memory >> 20
    assert await fleet.settled() == []


async def test_a_destination_holds_room_for_the_memory_until_the_machine_is_its_own(fleet: PlayedFleet) -> None:
    await suspended(fleet)
    move = await fleet.move(0, 1)
    there = fleet.hosts[1].world.store
    await eventually(fleet._clock, lambda: there.get(INCOMING, move.id), 60, 0.0005)
    coming = there.get(INCOMING, move.id)
    assert coming is not None and coming.memory is not None
    held = fleet.worker(0).record(fleet.machine).holds
    assert coming.holds.disk_mib > held.disk_mib and coming.holds.memory_mib == held.memory_mib
    assert (await fleet.ended(0, move.id)).stored_bytes == 2 << 20  # of the volume and of the memory
    await fleet.worker(1).reaches(fleet.machine, State.SUSPENDED)
    record = fleet.worker(1).record(fleet.machine)
    assert used(there).memory_mib == record.holds.memory_mib
    assert await fleet.settled() == []


async def test_a_memory_that_is_torn_where_it_comes_is_lost_and_the_machine_says_so(fleet: PlayedFleet) -> None:
    await suspended(fleet)
    move = await fleet.move(0, 1)
    host = fleet.hosts[1].world.host
    host.script("take_in", FakeFault(delay_s=5.0))
    await eventually(fleet._clock, lambda: fleet.machine in host.arrived, 60)
    host.arrived[MachineId(fleet.machine)] = -1
    assert (await fleet.ended(0, move.id)).state is MoveState.DONE
    await fleet.worker(1).reaches(fleet.machine, State.STOPPED)
    exits = [each for _, each in fleet.hosts[1].world.store.scan(EVENTS) if each.type == "exit"]
    assert exits[-1].detail is not None and exits[-1].detail.exit is not None
    assert "memory that came with the machine" in exits[-1].detail.exit.fault
    await fleet.worker(1).start(fleet.machine)
    await fleet.worker(1).reaches(fleet.machine, State.STARTED)
    assert await fleet.settled() == []


@pytest.mark.parametrize("step", ["arrive.network", "arrive.take_in", "receive.settle"])
@pytest.mark.parametrize("when", ["before", "inside", "after"])
async def test_a_destination_that_dies_while_the_machine_arrives_has_it_suspended_when_it_is_back(
    fleet: PlayedFleet, step: str, when: str
) -> None:
    memory = await suspended(fleet)
    move = await fleet.move(0, 1)
    await fleet.dies(1, f"{step} {when}")
    assert (await fleet.ended(0, move.id)).state is MoveState.DONE
    await goes_on(fleet, 1, memory)
    assert await fleet.settled() == []


@pytest.mark.parametrize(
    "step",
    [
        *(f"move.{step} after" for step in ("prepare", "stop", "close", "copy", "grant")),
        *(f"deliver.{step}" for step in ("deliver before", "deliver after", "retire inside", "retire after")),
    ],
)
async def test_a_source_that_dies_keeps_the_memory_or_has_given_it(fleet: PlayedFleet, step: str) -> None:
    memory = await suspended(fleet)
    move = await fleet.move(0, 1)
    await fleet.dies(0, step)
    found = await fleet.ended(0, move.id)
    await goes_on(fleet, 1 if found.state is MoveState.DONE else 0, memory)
    assert await fleet.settled() == []


async def test_a_stop_that_comes_while_the_machine_arrives_ends_it_there(fleet: PlayedFleet) -> None:
    await suspended(fleet)
    await fleet.move(0, 1)
    host = fleet.hosts[1].world.host
    host.script("take_in", FakeFault(delay_s=5.0))
    await eventually(fleet._clock, lambda: fleet.machine in host.arrived, 60)
    assert fleet.worker(1).record(fleet.machine).state is State.SUSPENDING
    await fleet.worker(1).stop(fleet.machine)
    await fleet.worker(1).reaches(fleet.machine, State.STOPPED)
    assert fleet.hosts[1].world.host.memories == set()
    assert await fleet.settled() == []


async def test_a_machine_that_is_taken_back_goes_on_where_it_was_suspended(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    move = await fleet.move(0, 1)
    assert (await fleet.ended(0, move.id)).state is MoveState.DONE
    await goes_on(fleet, 1, memory)
    await fleet._clock.sleep(5)
    await fleet.hosts[1].kill(power=True)
    made = await fleet.reclaim(move.id, accept_loss=True)
    assert (await fleet.ended(0, made.id)).state is MoveState.ABORTED
    fleet.forget_acknowledged()
    await goes_on(fleet, 0, memory)
    await fleet.hosts[1].begin(fleet._tasks)
    assert await fleet.settled() == []
    assert fleet.hosts[1].world.host.running() == {}


async def test_a_machine_that_a_lost_node_has_suspended_is_not_woken_when_it_is_given_up(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    move = await fleet.move(0, 1)
    assert (await fleet.ended(0, move.id)).state is MoveState.DONE
    await fleet.worker(1).reaches(fleet.machine, State.SUSPENDED)
    await fleet._clock.sleep(5)
    await fleet.hosts[1].kill(power=True)
    await fleet.reclaim(move.id, accept_loss=True)
    await goes_on(fleet, 0, memory)
    await fleet.hosts[1].begin(fleet._tasks)
    assert await fleet.settled() == []
    assert fleet.hosts[1].world.host.look(MachineId(fleet.machine)) is None


async def test_a_memory_that_was_granted_and_taken_back_unheard_is_where_it_was(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    move_id = await fleet.granted_to_a_lost_node()
    await fleet.reclaim(move_id)
    await goes_on(fleet, 0, memory)
    await fleet.hosts[1].begin(fleet._tasks)
    assert await fleet.settled() == []


async def test_a_cancelled_move_leaves_the_machine_suspended(fleet: PlayedFleet) -> None:
    memory = await suspended(fleet)
    with pytest.raises(WrongState, match="warm"):
        await fleet.move(0, 1, mode="warm")
    move = await fleet.move(0, 1)
    moves = fleet.worker(0).parts.moves
    await eventually(fleet._clock, lambda: moves.get(move.id).state is MoveState.COPYING, 60, 0.0005)
    await fleet.worker(0).parts.runner.cancel(RunId(move.id), "cancelled")
    assert (await fleet.ended(0, move.id)).state is MoveState.ABORTED
    seen = await fleet.worker(0).parts.deps.driver.inspect(MachineId(fleet.machine))
    assert seen.phase is Phase.SUSPENDED
    await goes_on(fleet, 0, memory)
    assert await fleet.settled() == []
    assert all(each.holds == Resources() for _, each in fleet.hosts[1].world.store.scan(INCOMING))
