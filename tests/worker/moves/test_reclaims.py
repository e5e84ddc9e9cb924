"""What was granted to a node that is lost comes back, and never has two owners."""

import msgspec
import pytest

from hawker.api.contract.move import GET_MOVE, RECLAIM_MOVE, MoveParams, TakeBackRequest
from hawker.api.contract.move_peer import SHOW_OUTGOING
from hawker.errors import HawkerError, NotFound, Unprocessable, WrongState
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.move import (
    COMING_SNAPSHOTS,
    GRANTS,
    INCOMING,
    MOVED,
    MOVES,
    RETIRED,
    RETIRED_KEPT_S,
    RETIRED_UNITS,
    IncomingState,
    MoveState,
)
from hawker.record.node import FENCED, TAKEOVERS, FailoverRecords
from hawker.record.volume import SNAPSHOTS, VOLUMES
from hawker.sim.harness.loop import eventually
from hawker.worker.moves.reclaims import GENERATIONS
from hawker.worker.moves.sweep import MoveSweep
from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_grant_that_was_never_heard_of_comes_back_without_a_loss() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.granted_to_a_lost_node()
        made = await fleet.reclaim(move_id)
        assert made.state == "reclaiming" and (await fleet.reclaim(move_id)).state == "reclaiming"
        move = await fleet.ended(0, move_id)
        assert move.state is MoveState.ABORTED and "is lost: taken back under generation 1002" in move.reason
        record = await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert record.generation == 2 + GENERATIONS and fleet.hosts[0].world.store.count(GRANTS) == 0
        assert fleet.hosts[0].world.store.count(MOVED) == 0
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []
        assert fleet.hosts[0].sight().running == {fleet.machine}


async def test_nothing_is_taken_back_from_a_node_whose_host_lives() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move(0, 1)).id)
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        for lives in ("the node", "its host alone"):
            with pytest.raises(WrongState, match="nothing is taken back from a node that lives"):
                await fleet.reclaim(move.id, accept_loss=True)
            await fleet.hosts[1].kill()
            assert lives
        with pytest.raises(NotFound):
            await fleet.reclaim("01")


async def test_a_machine_that_ran_elsewhere_comes_back_as_it_was_once_its_loss_is_accepted() -> None:
    async with played_fleet() as fleet:
        events = fleet.worker(0).events(fleet.machine)
        move_id = await fleet.moved_to_a_lost_node()
        with pytest.raises(Unprocessable, match=r"what was written there since [-0-9]+ [:0-9]+ UTC is missing here"):
            await fleet.reclaim(move_id)
        fleet.forget_acknowledged()
        made = await fleet.reclaim(move_id, accept_loss=True)
        assert made.state == "reclaiming"
        await fleet.ended(0, move_id)
        record = await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert record.generation == 2 + GENERATIONS
        assert fleet.worker(0).events(fleet.machine)[: len(events)] == events
        assert fleet.hosts[0].world.moved_files.retired == {} and fleet.hosts[0].world.store.count(RETIRED) == 0
        await fleet.hosts[1].begin(fleet._tasks)
        await eventually(fleet._clock, lambda: fleet.hosts[1].world.store.get(MACHINES, fleet.machine) is None, 600)
        assert await fleet.settled() == []
        returned = fleet.hosts[1].world.store
        assert fleet.hosts[0].sight().running == {fleet.machine} and fleet.hosts[1].sight().running == set()
        assert [each.state for _, each in returned.scan(INCOMING)] == [IncomingState.REFUSED]
        assert (fleet.volume, 2) in fleet.hosts[1].world.moved_files.retired
        again = await fleet.move(0, 1)
        assert (await fleet.ended(0, again.id)).state is MoveState.DONE
        assert await fleet.settled() == []


async def test_a_node_that_returns_cut_off_from_its_granter_starts_nothing_that_the_catalog_has_elsewhere() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        fleet.forget_acknowledged()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.ended(0, move_id)
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        fleet._fleet.call_network.unplugged.add(fleet.id(0))
        await fleet.hosts[1].begin(fleet._tasks)
        await fleet._clock.sleep(300)
        assert fleet.hosts[1].sight().running == set()
        fleet._fleet.call_network.unplugged.clear()
        assert await fleet.settled() == []


async def test_a_unit_is_taken_back_for_a_day_at_most() -> None:
    async with played_fleet() as fleet:
        move_id = await fleet.moved_to_a_lost_node()
        store = fleet.hosts[0].world.store
        kept = store.get(RETIRED_UNITS, move_id)
        assert kept is not None and kept.until > fleet._clock.now() + RETIRED_KEPT_S - 60
        old = msgspec.structs.replace(kept, until=fleet._clock.now())
        await store.write(lambda tx: tx.put(RETIRED_UNITS, move_id, old))
        with pytest.raises(WrongState, match="is kept for 24 hours"):
            await fleet.reclaim(move_id, accept_loss=True)
        await MoveSweep(fleet.worker(0).parts.deps, fleet.worker(0).parts.scheduled_moves).sweep()
        assert store.count(RETIRED_UNITS) == 0


async def test_a_free_volume_comes_back() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        await fleet.hosts[1].kill(power=True)
        await fleet.reclaim(move.id, accept_loss=True)
        await fleet.ended(0, move.id)
        volume = fleet.hosts[0].world.store.get(VOLUMES, fleet.free)
        assert volume is not None and volume.generation == 2 + GENERATIONS
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []
        assert fleet.hosts[1].world.store.get(VOLUMES, fleet.free) is None


async def test_free_volume_that_came_to_a_lost_node_twice_is_taken_back_by_one_node() -> None:
    async with played_fleet() as fleet:
        first = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        await fleet.ended(1, (await fleet.move_free(1, 2)).id)
        last = await fleet.ended(2, (await fleet.move_free(2, 1)).id)
        await fleet.hosts[1].kill(power=True)
        with pytest.raises(WrongState, match=f"move {last.id} from node {fleet.id(2)} followed"):
            await fleet.reclaim(first.id, accept_loss=True)
        at, body = MoveParams(move_id=last.id), TakeBackRequest(accept_loss=True)
        await fleet.worker(2).api.call(RECLAIM_MOVE, params=at, body=body)
        await fleet.ended(2, last.id)
        with pytest.raises(HawkerError):
            await fleet.reclaim(first.id, accept_loss=True)
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []


async def test_volume_is_taken_back_while_a_node_that_never_had_it_is_away() -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        await fleet.hosts[1].kill(power=True)
        await fleet.hosts[2].kill()
        assert (await fleet.reclaim(move.id, accept_loss=True)).state == "reclaiming"


async def test_a_move_that_is_not_granted_is_cancelled_and_not_taken_back() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        with pytest.raises(WrongState, match="hawker moves cancel"):
            await fleet.reclaim(move.id)
        assert (await fleet.ended(0, move.id)).state is MoveState.DONE
        shown = await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))
        said = await fleet.worker(0).api.call(SHOW_OUTGOING, params=MoveParams(move_id=move.id))
        assert shown.state == "done" and said.reclaimed == 0
        assert fleet.hosts[0].world.store.get(MOVES, move.id) is not None


@pytest.mark.parametrize("released", [False, True], ids=["before its former node let it go", "after"])
async def test_a_snapshot_that_followed_to_a_lost_node_comes_back_with_its_volume(released: bool) -> None:
    async with played_fleet() as fleet:
        move = await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        here, there = fleet.hosts[0].world.store, fleet.hosts[1].world.store
        snapshot = next(each.id for _, each in here.scan(SNAPSHOTS) if each.volume == fleet.free)
        if not released:
            await eventually(
                fleet._clock, lambda: any(each.arrived for _, each in there.scan(COMING_SNAPSHOTS)), 900, 0.001
            )
        else:
            await eventually(fleet._clock, lambda: here.get(SNAPSHOTS, snapshot) is None, 900)
        await fleet.hosts[1].kill(power=True)
        await fleet.reclaim(move.id, accept_loss=True)
        await fleet.ended(0, move.id)
        await fleet.hosts[1].begin(fleet._tasks)
        assert await fleet.settled() == []
        holders = [
            number for number, store in enumerate((here, fleet.hosts[1].world.store)) if store.get(SNAPSHOTS, snapshot)
        ]
        assert holders == [0]


async def test_reclaimed_machine_has_what_failover_remembered_of_it() -> None:
    async with played_fleet() as fleet:
        known, store = await fleet.failed_over(), fleet.hosts[0].world.store
        move_id = await fleet.moved_to_a_lost_node()
        await store.write(lambda tx: tx.delete(FENCED, fleet.machine))  # as failover does once the machine is gone
        await store.write(lambda tx: tx.delete(TAKEOVERS, f"{known.takeovers[0].machine}/{fleet.machine}"))
        assert fleet.remembers(0) == FailoverRecords()
        await fleet.reclaim(move_id, accept_loss=True, now=True)
        await fleet.ended(0, move_id)
        assert fleet.remembers(0) == known
