"""Flow `move`, between played hosts: whatever fails before the grant leaves the machine as it was."""

import pytest

from hawker.api.contract.move import (
    CANCEL_MOVE,
    GET_MOVE,
    LIMIT_MOVE,
    MOVE_MACHINE,
    PAUSE_MOVE,
    RESUME_MOVE,
    LimitMoveRequest,
    MoveParams,
    MoveRequest,
)
from hawker.api.contract.move_peer import OFFER_MOVE
from hawker.errors import Damaged, Moved, MoveUnderWay, WrongState
from hawker.host.changed_blocks import BLOCK_BYTES
from hawker.ids import MachineId, NodeId, RunId, VolumeId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import DESTROYED, EVENTS, MACHINES
from hawker.record.move import GRANTS, MOVES, PAUSED_AT_MOST_S, MoveMode, MoveRecord, MoveState
from hawker.record.node import used
from hawker.sim.fleet.network import PassingCall
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import params
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def aborted(fleet: PlayedFleet, move_id: str) -> MoveRecord:
    move = await fleet.ended(0, move_id)
    assert move.state is MoveState.ABORTED
    await fleet.worker(0).reaches(fleet.machine, State.STARTED)
    assert await fleet.settled() == []
    assert fleet.hosts[0].sight().running == {fleet.machine}
    return move


async def test_a_machine_goes_with_all_that_it_is_and_leaves_nothing() -> None:
    async with played_fleet() as fleet:
        before, held = fleet.worker(0).record(fleet.machine), used(fleet.hosts[0].world.store)
        move = await fleet.move(0, 1)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        after = await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert (after.id, after.name, after.version, after.generation) == (before.id, before.name, before.version, 2)
        events = fleet.worker(1).events(fleet.machine)
        assert [each for each in events if each.startswith("migrate/")] == [
            "migrate/preparing", "migrate/copying", "migrate/stopped", "migrate/started",
        ]  # fmt: skip
        assert used(fleet.hosts[0].world.store) != held
        with pytest.raises(Moved):
            await fleet.worker(0).get(fleet.machine)
        assert await fleet.settled() == []


async def test_a_node_that_is_away_is_no_destination_and_the_machine_never_stopped() -> None:
    async with played_fleet() as fleet:
        await fleet.hosts[1].kill()
        launched = fleet.worker(0).record(fleet.machine).running
        move = await aborted(fleet, (await fleet.move(0, 1)).id)
        assert "no node can take it" in move.reason
        assert fleet.worker(0).record(fleet.machine).running == launched


@pytest.mark.parametrize("taken", [False, True])
async def test_a_destination_that_dies_of_the_offer_is_passed_over_for_the_next_node(taken: bool) -> None:
    """Before it took the offer, or after: then it holds room for it, and gives that back when it returns."""
    async with played_fleet() as fleet:
        lost: list[NodeId] = []

        def hear(passing: PassingCall) -> None:
            if passing.route == OFFER_MOVE.name and passing.before is not taken and not lost:
                lost.append(passing.receiver)
                host = next(each for each in fleet.hosts if each.id == passing.receiver)
                host.fall(kept=float(taken))

        fleet._fleet.call_network.hears = hear
        found = await fleet.ended(0, (await fleet.move(0, None)).id)
        fleet._fleet.call_network.hears = lambda passing: None
        [first] = lost
        dead = next(number for number, each in enumerate(fleet.hosts) if each.id == first)
        assert found.state is MoveState.DONE, found.reason
        assert found.to not in (None, first, fleet.id(0))
        await fleet.again(dead)
        assert await fleet.settled() == []


@pytest.mark.parametrize("place", ["receive.image before", "receive.image after"])
async def test_a_destination_that_is_started_anew_while_it_gets_ready_is_waited_for(place: str) -> None:
    async with played_fleet() as fleet:
        move, host = await fleet.move(0, 1), fleet.hosts[1]
        host.world.crash_points.burns_in = place
        await eventually(fleet._clock, lambda: host.worker is None, 60, 0.01)
        await fleet._clock.sleep(10)
        await fleet.again(1)
        found = await fleet.ended(0, move.id)
        assert found.state is MoveState.DONE, found.reason
        assert await fleet.settled() == []


async def test_a_destination_that_falls_silent_in_the_copy_gives_the_machine_back() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: not fleet.hosts[0].sight().running, 60)
        await fleet.hosts[1].kill()
        found = await fleet.ended(0, move.id)
        assert found.state is MoveState.ABORTED
        assert found.back_at is not None and found.away_at is not None and found.back_at - found.away_at < 60
        assert await fleet.settled() == []


async def test_a_copy_that_differs_is_never_granted() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.spoils = 1000
        move = await aborted(fleet, (await fleet.move(0, 1)).id)
        assert "is not what is at node" in move.reason


async def test_a_move_is_cancelled_until_it_is_granted() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        with pytest.raises(MoveUnderWay):
            await fleet.worker(0).stop(fleet.machine)
        await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
        await aborted(fleet, move.id)
        again = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.get(GRANTS, fleet.machine), 60, 0.0005)
        with pytest.raises(WrongState, match="owns it already"):
            await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=again.id))
        assert (await fleet.ended(0, again.id)).state is MoveState.DONE


async def test_a_paused_move_copies_nothing_and_stops_no_machine_until_it_is_resumed() -> None:
    async with played_fleet() as fleet:
        for mode in ("warm", "cold"):
            api, clock = fleet.worker(0).api, fleet._clock
            move = await fleet.move(0, 1, mode=mode)
            at = MoveParams(move_id=move.id)
            assert (await api.call(PAUSE_MOVE, params=at)).paused
            await clock.sleep(60)
            before = await api.call(GET_MOVE, params=at)
            await clock.sleep(60)
            after = await api.call(GET_MOVE, params=at)
            assert after.paused and after.away_ms is None and after.copied_bytes == before.copied_bytes
            assert fleet.hosts[0].sight().running == {fleet.machine}, "and it runs where it was"
            assert not (await api.call(RESUME_MOVE, params=at)).paused
            assert (await fleet.ended(0, move.id)).state is MoveState.DONE
            for call in (PAUSE_MOVE, RESUME_MOVE):
                with pytest.raises(WrongState, match="the move is done"):
                    await api.call(call, params=at)
            assert (await fleet.ended(1, (await fleet.move(1, 0)).id)).state is MoveState.DONE
            await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


@pytest.mark.long(reason="an hour of a played fleet; that a paused move waits and goes on is the short form")
async def test_a_pause_ends_by_itself_and_outlives_daemons() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await fleet.worker(0).api.call(PAUSE_MOVE, params=MoveParams(move_id=move.id))
        await fleet.again(0)
        await fleet.again(1)
        await fleet._clock.sleep(PAUSED_AT_MOST_S - 120)
        found = await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))
        assert found.paused and found.state in ("preparing", "warming")
        await fleet._clock.sleep(240)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert await fleet.settled() == []


async def test_a_paused_move_is_cancelled() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        at = MoveParams(move_id=move.id)
        await fleet.worker(0).api.call(PAUSE_MOVE, params=at)
        await fleet._clock.sleep(10)
        assert not (await fleet.worker(0).api.call(CANCEL_MOVE, params=at)).paused
        assert (await aborted(fleet, move.id)).away_at is None


async def test_a_machine_that_is_off_is_not_kept_off_by_a_pause() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        at = MoveParams(move_id=move.id)
        await eventually(fleet._clock, lambda: not fleet.hosts[0].sight().running, 60, 0.0005)
        with pytest.raises(WrongState, match="off for the move"):
            await fleet.worker(0).api.call(PAUSE_MOVE, params=at)
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.get(GRANTS, fleet.machine), 60, 0.0005)
        for body in (0, 7):
            with pytest.raises(WrongState, match="owns it already"):
                await fleet.worker(0).api.call(LIMIT_MOVE, params=at, body=LimitMoveRequest(limit_mib_per_s=body))
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE


async def test_a_machine_that_exits_during_the_copy_stays_and_is_restarted() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        await fleet.hosts[1].kill()
        fleet.hosts[0].world.host.end(MachineId(fleet.machine), 1)
        found = await aborted(fleet, move.id)
        assert found.away_at is None and "exited" in found.reason


async def exits_before_its_cold_move(fleet: PlayedFleet, exit_code: int, **config: object) -> tuple[MachineId, str]:
    """A machine of its own that ends while its move is paused; its id, and that of the move, which then goes on."""
    first, clock = fleet.worker(0), fleet._clock
    job = MachineId(await first.started(**config))
    body = MoveRequest(to=fleet.id(1), mode="cold")
    at = MoveParams(move_id=(await first.api.call(MOVE_MACHINE, params=params(job), body=body)).id)
    await first.api.call(PAUSE_MOVE, params=at)
    await clock.sleep(10)
    fleet.hosts[0].world.host.end(job, exit_code)
    await eventually(clock, lambda: first.record(job).state is not State.STARTED, 60, 0.01)
    await first.api.call(RESUME_MOVE, params=at)
    return job, at.move_id


async def test_machine_that_has_done_its_work_before_its_cold_move_is_not_started_again() -> None:
    async with played_fleet() as fleet:
        job, move_id = await exits_before_its_cold_move(fleet, 0, restart={"policy": "no"})
        move = await fleet.ended(0, move_id)
        assert (move.state, move.away_at) == (MoveState.ABORTED, None) and "exited" in move.reason
        await fleet._clock.sleep(60)
        record = fleet.worker(0).record(job)
        assert record.state is State.STOPPED and record.holds == Resources()
        assert fleet.worker(0).events(job).count("start/started") == 1
        assert fleet.hosts[1].world.store.get(MACHINES, job) is None
        assert await fleet.settled() == []


async def test_machine_that_is_destroyed_at_its_end_is_so_whatever_was_to_move_it() -> None:
    async with played_fleet() as fleet:
        job, move_id = await exits_before_its_cold_move(fleet, 0, restart={"policy": "no"}, auto_destroy=True)
        assert (await fleet.ended(0, move_id)).state is MoveState.ABORTED
        await eventually(fleet._clock, lambda: fleet.hosts[0].world.store.get(DESTROYED, job), 60)
        assert fleet.hosts[1].world.store.get(MACHINES, job) is None and not fleet.hosts[1].sight().running


async def test_machine_that_its_policy_starts_again_is_started_where_it_moves() -> None:
    async with played_fleet() as fleet:
        job, move_id = await exits_before_its_cold_move(fleet, 1, restart={"policy": "always"})
        assert (await fleet.ended(0, move_id)).state is MoveState.DONE
        await fleet.worker(1).reaches(job, State.STARTED)
        assert await fleet.settled() == []


async def test_a_block_that_was_copied_once_more_is_compared_once_more() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[1].world.moved_files.spoils = 10**9
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.moved_files.drafted, 60, 0.0005)
        fleet.hosts[0].world.host.end(MachineId(fleet.machine), 1)  # and writes nothing any more
        assert (await fleet.ended(0, move.id)).state is MoveState.ABORTED


async def test_a_volume_nobody_writes_to_is_not_copied_warm() -> None:
    async with played_fleet() as fleet:
        await fleet.worker(0).stop(fleet.machine)
        await fleet.worker(0).reaches(fleet.machine, State.STOPPED)
        with pytest.raises(WrongState, match="use `cold`"):
            await fleet.move(0, 1, mode="warm")
        move = await fleet.move(0, 1)
        assert move.mode == "cold"
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE


@pytest.mark.parametrize("mode", ["cold", "warm"])
async def test_a_machine_whose_disk_cannot_be_read_stays_and_its_move_says_where(mode: str) -> None:
    async with played_fleet() as fleet:
        volume = fleet.volume
        fleet.hosts[0].world.disks.rot[volume] = frozenset({5})
        move = await aborted(fleet, (await fleet.move(0, 1, mode=mode)).id)
        where = f"volume {volume} cannot be read at byte {5 * BLOCK_BYTES}: its disk is damaged"
        assert where in move.reason and move.damage == where
        shown = await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))
        run = await fleet.worker(0).parts.runner.wait(RunId(move.id), 1.0)
        assert shown.code == "damaged" and isinstance(run.failure, Damaged)
        assert not fleet.hosts[1].sight().drafts


async def test_a_volume_whose_disk_cannot_be_read_stays_and_can_move_once_it_is_read() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[0].world.disks.rot[VolumeId(fleet.free)] = frozenset({0})
        move = await aborted(fleet, (await fleet.move_free(0, 1)).id)
        assert f"volume {fleet.free} cannot be read at byte 0" in move.reason
        fleet.hosts[0].world.disks.rot.clear()
        assert (await fleet.ended(0, (await fleet.move_free(0, 1)).id)).state is MoveState.DONE


async def suspended(fleet: PlayedFleet) -> None:
    await fleet._clock.sleep(1)  # it writes meanwhile
    await fleet.worker(0).suspend(fleet.machine)
    await fleet.worker(0).reaches(fleet.machine, State.SUSPENDED)


def told(fleet: PlayedFleet, number: int) -> list[str]:
    """What the machine's events say of its memory."""
    store = fleet.hosts[number].world.store
    details = [each.detail for _, each in store.scan(EVENTS, f"{fleet.machine}/") if each.detail is not None]
    return [each.error for each in details if each.error and "memory is dropped" in each.error]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_suspended_machine_moves_only_by_a_cold_start_and_stays_stopped(seed: int) -> None:
    async with played_fleet(seed=seed) as fleet:
        await suspended(fleet)
        with pytest.raises(WrongState, match="--cold-start"):
            await fleet.move(0, 1)
        before = fleet.hosts[0].sight().contents
        move = await fleet.ended(0, (await fleet.move(0, 1, cold_start=True)).id)
        assert (move.state, move.mode, move.ran) == (MoveState.DONE, MoveMode.COLD, False)
        record = fleet.worker(1).record(fleet.machine)
        assert record.state is State.STOPPED and len(told(fleet, 1)) == 1
        contents = fleet.hosts[1].sight().contents or {}
        assert before and all(contents[each] >= before[each] for each in contents)
        assert await fleet.worker(1).start(fleet.machine) is State.STOPPED
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


async def test_a_suspended_machine_whose_move_ends_before_its_stop_is_suspended_still() -> None:
    async with played_fleet() as fleet:
        await suspended(fleet)
        await fleet.hosts[1].kill()
        move = await fleet.ended(0, (await fleet.move(0, 1, cold_start=True)).id)
        assert move.state is MoveState.ABORTED and told(fleet, 0) == []
        assert fleet.worker(0).record(fleet.machine).state is State.SUSPENDED
        await fleet.worker(0).start(fleet.machine)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []


@pytest.mark.parametrize("at", [MoveState.STOPPING, MoveState.COPYING])
async def test_a_suspended_machine_whose_move_is_cancelled_later_is_stopped_where_it_was(at: MoveState) -> None:
    async with played_fleet() as fleet:
        await suspended(fleet)
        fleet.hosts[0].world.host.stubborn.add(MachineId(fleet.machine))  # its stop takes a while
        move, store = await fleet.move(0, 1, cold_start=True), fleet.hosts[0].world.store

        def there() -> bool:
            record = store.get(MOVES, move.id)
            return record is not None and record.state is at

        await eventually(fleet._clock, there, 600, 0.0002)
        await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
        assert (await fleet.ended(0, move.id)).state is MoveState.ABORTED
        record = await fleet.worker(0).reaches(fleet.machine, State.STOPPED)
        await eventually(fleet._clock, lambda: fleet.worker(0).record(fleet.machine).holds == Resources(), 60)
        assert len(told(fleet, 0)) == 1 and record.generation == 1
        await fleet.worker(0).start(fleet.machine)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


async def test_a_cold_start_goes_on_over_the_deaths_of_both() -> None:
    async with played_fleet() as fleet:
        await suspended(fleet)
        move = await fleet.move(0, 1, cold_start=True)
        for number in (0, 1, 0):
            await fleet._clock.sleep(0.3)
            await fleet.again(number, kept=0.0, power=True)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        assert fleet.worker(1).record(fleet.machine).state is State.STOPPED
        await fleet.worker(1).start(fleet.machine)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []
