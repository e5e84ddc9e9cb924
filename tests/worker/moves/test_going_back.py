"""A machine that does not start where it moved to: back where it ran, once, whoever is killed."""

import msgspec
import pytest

from hawker.errors import Fault, NoRoom
from hawker.ids import Version
from hawker.machine import State
from hawker.record.machine import MACHINES, Lease
from hawker.record.move import MOVES, TRIALS, MoveState
from hawker.record.node import NODE
from hawker.sim.harness.loop import eventually
from hawker.store.contract import Tx
from hawker.worker.moves.going_back import STARTS_TRIED
from hawker.worker.table import EVENTS_KEPT, Happened
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


class Dud:
    """The host's way to make root filesystems, which fails the next `times` times."""

    def __init__(self, fleet: PlayedFleet, number: int, times: int) -> None:
        self._rootfs = fleet.hosts[number].world.rootfs
        self._mount = self._rootfs.mount
        self.left = times
        self._rootfs.mount = self.mount  # type: ignore[method-assign]

    async def mount(self, *args: object, **options: object) -> str:
        if self.left > 0:
            self.left -= 1
            raise Fault("this host mounts nothing")
        return await self._mount(*args, **options)  # type: ignore[arg-type]


def runs_at(fleet: PlayedFleet, number: int) -> bool:
    record = fleet.hosts[number].world.store.get(MACHINES, fleet.machine)
    return record is not None and record.state is State.STARTED


async def test_a_machine_that_does_not_start_goes_back_and_runs() -> None:
    async with played_fleet() as fleet:
        dud = Dud(fleet, 1, 1000)
        first = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.store.count(MOVES) > 0, 300)
        assert 1000 - dud.left == STARTS_TRIED
        ((_, back),) = fleet.hosts[1].world.store.scan(MOVES)
        assert (back.back_of, back.to, back.ran) == (first.id, fleet.id(0), True)
        assert not back.alone, "its machine is off already, so it waits for no other move of its app"
        assert (await fleet.ended(1, back.id)).state is MoveState.DONE
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 60)
        went = fleet.hosts[0].world.store.get(MOVES, first.id)
        assert went is not None and f"did not start at node {fleet.id(1)}" in went.reason
        assert fleet.worker(0).record(fleet.machine).generation == 3
        assert await fleet.settled() == []
        assert [host.world.store.count(TRIALS) for host in fleet.hosts] == [0, 0, 0]


async def test_a_machine_that_starts_at_last_stays() -> None:
    async with played_fleet() as fleet:
        Dud(fleet, 1, STARTS_TRIED - 1)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await eventually(fleet._clock, lambda: runs_at(fleet, 1), 60)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.store.count(TRIALS) == 0, 60)
        assert fleet.hosts[1].world.store.count(MOVES) == 0
        assert await fleet.settled() == []


async def test_a_machine_with_as_many_events_as_are_kept_has_arrived_once_it_starts() -> None:
    async with played_fleet() as fleet:
        table = fleet.worker(0).parts.deps.table

        def fill(tx: Tx) -> None:
            for _ in range(EVENTS_KEPT):
                record = tx.get(MACHINES, fleet.machine)
                assert record is not None
                table.change(tx, record, Happened("start", "started"))

        await fleet.hosts[0].world.store.write(fill)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await eventually(fleet._clock, lambda: runs_at(fleet, 1), 60)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.store.count(TRIALS) == 0, 60)


async def test_a_machine_goes_back_once_and_no_farther() -> None:
    async with played_fleet() as fleet:
        Dud(fleet, 1, 1000)
        first = await fleet.move(0, 1)
        await fleet.ended(0, first.id)
        there = Dud(fleet, 0, 1000)
        await eventually(fleet._clock, lambda: there.left < 1000, 300)
        await fleet._clock.sleep(600)
        assert fleet.worker(0).record(fleet.machine).state is State.FAILED and there.left == 999
        assert [host.world.store.count(MOVES) for host in fleet.hosts] == [1, 1, 0]


async def test_a_cordoned_source_takes_back_what_was_its_own_and_nothing_else() -> None:
    async with played_fleet() as fleet:
        Dud(fleet, 1, 1000)
        first = await fleet.move(0, 1)
        store = fleet.hosts[0].world.store

        def cordon(tx: Tx) -> None:
            node = tx.get(NODE, "self")
            assert node is not None
            tx.put(NODE, "self", msgspec.structs.replace(node, cordoned=True))

        await store.write(cordon)
        await fleet.ended(0, first.id)
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 300)
        await fleet.ended(0, (await fleet.move_free(0, 2)).id)
        refused = await fleet.ended(2, (await fleet.move_free(2, 0)).id)
        assert refused.state is MoveState.ABORTED and "cordoned" in refused.reason


async def test_a_source_that_is_away_is_waited_for() -> None:
    async with played_fleet() as fleet:
        dud = Dud(fleet, 1, 1000)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.hosts[0].kill()
        await eventually(fleet._clock, lambda: 1000 - dud.left == STARTS_TRIED, 300)
        await fleet._clock.sleep(120)
        assert fleet.hosts[1].world.store.count(TRIALS) == 1
        await fleet.hosts[0].begin(fleet._tasks)
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 2000)
        assert await fleet.settled() == []


async def test_a_move_back_that_is_aborted_once_its_machine_is_off_is_ordered_again() -> None:
    async with played_fleet() as fleet:
        Dud(fleet, 1, 1000)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        store = fleet.hosts[1].world.store
        await eventually(fleet._clock, lambda: fleet.worker(1).record(fleet.machine).state is State.STOPPED, 300, 0.01)
        await fleet.hosts[0].kill(kept=0.0, power=True)
        await fleet._clock.sleep(6)  # somebody looks meanwhile
        assert store.count(TRIALS) == 1, "the machine is off for its move, and on trial still"
        ((_, back),) = store.scan(MOVES)
        assert (await fleet.ended(1, back.id)).state is MoveState.ABORTED
        await fleet.hosts[0].begin(fleet._tasks)
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 2000)
        assert await fleet.settled() == []


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("pause_s", [3.1, 5.3, 7.7])
async def test_a_machine_goes_back_whoever_is_killed(number: int, power: bool, pause_s: float) -> None:
    async with played_fleet() as fleet:
        Dud(fleet, 1, 1000)
        first = await fleet.move(0, 1)
        for _ in range(5):
            await fleet._clock.sleep(pause_s)
            await fleet.again(number, kept=0.0, power=power)
        await fleet.ended(0, first.id)
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 3000)
        assert fleet.worker(0).record(fleet.machine).generation % 2 == 1
        assert await fleet.settled() == []


async def test_a_machine_that_somebody_changes_is_on_trial_no_longer() -> None:
    async with played_fleet() as fleet:
        dud = Dud(fleet, 1, 1000)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        store = fleet.hosts[1].world.store
        await eventually(fleet._clock, lambda: store.count(TRIALS) == 1, 60)
        deps = fleet.worker(1).parts.deps
        machine = fleet.worker(1).record(fleet.machine)
        changed = Version("01CHANGED")
        await store.write(lambda tx: deps.table.change(tx, machine, version=changed))
        await eventually(fleet._clock, lambda: store.count(TRIALS) == 0, 60)
        await fleet._clock.sleep(120)
        assert 1000 - dud.left < STARTS_TRIED and store.count(MOVES) == 0


async def test_a_start_that_is_refused_is_not_a_start_that_failed() -> None:
    async with played_fleet() as fleet:
        dud = Dud(fleet, 1, 1000)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        worker, store = fleet.worker(1), fleet.hosts[1].world.store
        await eventually(fleet._clock, lambda: worker.record(fleet.machine).state is State.FAILED, 60)
        begun, table = 1000 - dud.left, worker.parts.deps.table
        lease = Lease(nonce="theirs", owner="somebody", description="", expires_at=fleet._clock.now() + 60)
        await store.write(lambda tx: table.change(tx, worker.record(fleet.machine), lease=lease))
        await fleet._clock.sleep(50)
        assert 1000 - dud.left == begun and store.count(MOVES) == 0
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 300)
        assert 1000 - dud.left == STARTS_TRIED
        assert await fleet.settled() == []


async def test_a_machine_without_room_where_it_does_not_start_goes_back() -> None:
    async with played_fleet() as fleet:
        dud = Dud(fleet, 1, 1000)
        await fleet.ended(0, (await fleet.move(0, 1)).id)
        worker = fleet.worker(1)
        await eventually(fleet._clock, lambda: worker.record(fleet.machine).state is State.FAILED, 60)

        async def full(*_: object, **__: object) -> None:
            raise NoRoom("short of memory", scope="host", shortfall={})

        worker.parts.moves_back._operations.start = full  # type: ignore[method-assign,assignment]
        await eventually(fleet._clock, lambda: runs_at(fleet, 0), 300)
        assert 1000 - dud.left < STARTS_TRIED
