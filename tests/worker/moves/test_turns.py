"""The turn of an app's moves, between played hosts; the first one is the app's home."""

import pytest
from msgspec.structs import replace

from hawker.api.contract.move import CANCEL_MOVE, GET_MOVE, PAUSE_MOVE, RESUME_MOVE, Move, MoveParams
from hawker.api.contract.move_turn import TurnRequest
from hawker.errors import Forbidden
from hawker.ids import AppName, NodeId
from hawker.machine import State
from hawker.record.app import APPS
from hawker.record.move import MOVES, OPEN_MOVES, TURNS, MoveRecord, MoveState, TurnRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP
from hawker.worker.moves.turns import LONGEST_S, PATIENCE_S, REST_S, TURN_S, AppTurns, next_turn
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

STRANGER = "0" * 26


def last_turn(fleet: PlayedFleet) -> TurnRecord | None:
    return fleet.hosts[0].world.store.get(TURNS, AppName(APP))


def turn_at(fleet: PlayedFleet) -> TurnRecord | None:
    """None once it is over."""
    turn = last_turn(fleet)
    return turn if turn is not None and turn.until > fleet._clock.now() else None


def turns_of(fleet: PlayedFleet) -> AppTurns:
    return AppTurns(fleet.worker(0).parts.deps)


def record_of(fleet: PlayedFleet, move: Move) -> MoveRecord:
    host = next(each for each in fleet.hosts if each.id == move.node)
    found = host.world.store.get(MOVES, move.id)
    assert found is not None
    return found


async def give(fleet: PlayedFleet, move: str, node: NodeId, for_s: float) -> None:
    """The turn, to a move that somebody else makes."""
    record = TurnRecord(move=move, node=node, until=fleet._clock.now() + for_s)
    await fleet.hosts[0].world.store.write(lambda tx: tx.put(TURNS, AppName(APP), record))


async def apart(fleet: PlayedFleet) -> None:
    """The machine is at the second host, and the free volume at the third."""
    assert (await fleet.ended(0, (await fleet.move(0, 1)).id)).state is MoveState.DONE
    await fleet.worker(1).reaches(fleet.machine, State.STARTED)
    assert (await fleet.ended(0, (await fleet.move_free(0, 2)).id)).state is MoveState.DONE


async def test_moves_of_an_app_from_two_nodes_wait_for_each_other_and_say_so() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        first = await fleet.move(1, 0)
        await eventually(fleet._clock, lambda: record_of(fleet, first).has_turn, 60, 0.0005)
        second = await fleet.move_free(2, 1)
        await eventually(fleet._clock, lambda: bool(record_of(fleet, second).waits), 60, 0.001)
        shown = await fleet.worker(2).api.call(GET_MOVE, params=MoveParams(move_id=second.id))
        assert shown.waits == f"it waits for its turn: move {first.id} of app '{APP}' is under way at node {first.node}"
        assert record_of(fleet, first).state in OPEN_MOVES and record_of(fleet, second).to == ""
        assert (await fleet.ended(1, first.id)).state is MoveState.DONE
        ended = await fleet.ended(2, second.id)
        assert (ended.state, ended.waits) == (MoveState.DONE, "")
        assert turn_at(fleet) is None
        assert await fleet.settled() == []


async def test_a_home_that_is_away_keeps_nobody_from_moving() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        await fleet.hosts[0].kill()
        move = await fleet.move(1, 2)
        ended = await fleet.ended(1, move.id)
        assert ended.state is MoveState.DONE and not ended.has_turn
        await fleet.hosts[0].begin(fleet._tasks)
        assert await fleet.settled() == []


async def test_a_node_that_is_not_the_home_says_so_and_the_move_goes_on() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        store = fleet.hosts[0].world.store
        app = store.get(APPS, APP)
        assert app is not None
        await store.write(lambda tx: tx.put(APPS, APP, replace(app, home=fleet.id(2))))
        assert (await fleet.ended(1, (await fleet.move(1, 2)).id)).state is MoveState.DONE
        assert turn_at(fleet) is None


async def test_a_turn_that_an_ended_move_left_behind_is_taken_over_at_once() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        for holder, node in ((STRANGER, fleet.id(2)), (STRANGER, fleet.id(1)), (STRANGER, fleet.id(0))):
            await give(fleet, holder, node, TURN_S)
            before = fleet._clock.monotonic()
            move = await fleet.move(1, 2, mode="cold")
            assert (await fleet.ended(1, move.id)).state is MoveState.DONE
            assert fleet._clock.monotonic() - before < 60
            await fleet.worker(2).reaches(fleet.machine, State.STARTED)
            assert (await fleet.ended(2, (await fleet.move(2, 1)).id)).state is MoveState.DONE
            await fleet.worker(1).reaches(fleet.machine, State.STARTED)


async def test_a_turn_of_a_node_that_is_away_is_over_after_a_while() -> None:
    async with played_fleet() as fleet:
        await give(fleet, STRANGER, NodeId("away0000"), 100.0)
        began = fleet._clock.now()
        move = await fleet.move(0, 1)
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.DONE and ended.granted_at is not None and ended.granted_at >= began + 100
        assert await fleet.settled() == []


async def test_a_move_that_waits_too_long_is_busy_and_the_machine_never_stopped() -> None:
    async with played_fleet() as fleet:
        await give(fleet, STRANGER, NodeId("away0000"), 10 * PATIENCE_S)
        launched = fleet.worker(0).record(fleet.machine).running
        ended = await fleet.ended(0, (await fleet.move(0, 1)).id)
        assert ended.state is MoveState.ABORTED and "busy" in ended.reason and STRANGER in ended.reason
        assert ended.away_at is None and fleet.worker(0).record(fleet.machine).running == launched
        turn = turn_at(fleet)
        assert turn is not None and turn.move == STRANGER
        assert await fleet.settled() == []


async def test_a_move_that_waits_is_cancelled_and_one_under_way_leaves_its_turn() -> None:
    async with played_fleet() as fleet:
        await give(fleet, STRANGER, NodeId("away0000"), TURN_S)
        move = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: bool(record_of(fleet, move).waits), 60, 0.01)
        cancelled = await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
        assert cancelled.state == MoveState.ABORTED
        await give(fleet, STRANGER, fleet.id(0), TURN_S)
        again = await fleet.move(0, 1)
        await eventually(fleet._clock, lambda: record_of(fleet, again).has_turn, 60, 0.0005)
        await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=again.id))
        assert turn_at(fleet) is None
        assert await fleet.settled() == []


@pytest.mark.long(reason="an hour of a played fleet; a turn of a move under way, below, is the short form")
async def test_a_turn_is_kept_as_long_as_its_move_is_under_way() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        move = await fleet.move(1, 0)
        at = MoveParams(move_id=move.id)
        await fleet.worker(1).api.call(PAUSE_MOVE, params=at)
        await fleet._clock.sleep(2 * TURN_S)
        turn = turn_at(fleet)
        assert turn is not None and turn.move == move.id and turn.until > fleet._clock.now() + TURN_S / 2
        await fleet.worker(1).api.call(RESUME_MOVE, params=at)
        assert (await fleet.ended(1, move.id)).state is MoveState.DONE
        assert turn_at(fleet) is None


async def test_a_machine_is_not_stopped_once_the_turn_is_another_move_s() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        at = MoveParams(move_id=move.id)
        await fleet.worker(0).api.call(PAUSE_MOVE, params=at)
        await eventually(fleet._clock, lambda: record_of(fleet, move).has_turn, 60, 0.01)
        await give(fleet, STRANGER, NodeId("away0000"), 60.0)
        over = fleet._clock.now() + 60.0
        await fleet.worker(0).api.call(RESUME_MOVE, params=at)
        await eventually(fleet._clock, lambda: bool(record_of(fleet, move).waits), 120, 0.01)
        assert fleet.hosts[0].sight().running == {fleet.machine}
        ended = await fleet.ended(0, move.id)
        assert ended.state is MoveState.DONE and ended.away_at is not None and ended.away_at >= over
        assert await fleet.settled() == []


async def test_turns_that_are_over_are_forgotten() -> None:
    async with played_fleet() as fleet:
        await give(fleet, STRANGER, fleet.id(1), 30.0)
        await fleet._clock.sleep(150)
        assert last_turn(fleet) is None


def next_of(held: TurnRecord | None, node: NodeId, now: float) -> TurnRecord | None:
    return next_turn(held, STRANGER, node, now)


def test_turn_is_one_node_s_for_so_long_and_then_for_others() -> None:
    mine, others, now = NodeId("mine0000"), NodeId("others00"), 1000.0
    held = next_of(None, mine, now)
    assert held == TurnRecord(move=STRANGER, node=mine, until=now + TURN_S, since=now)
    while (following := next_of(held, mine, now)) is not None:
        held, now = following, now + TURN_S / 4
    assert now == held.until == held.since + LONGEST_S
    assert next_of(held, mine, now + REST_S - 1) is None
    again = next_of(held, others, now)
    assert again is not None and again.since == now
    rested = next_of(held, mine, now + REST_S)
    assert rested is not None and rested.since == now + REST_S


def test_turn_that_a_node_leaves_and_takes_again_goes_on_with_its_time() -> None:
    mine = NodeId("mine0000")
    held = TurnRecord(move=STRANGER, node=mine, until=1000.0, since=400.0)
    soon, late = next_of(held, mine, 1001.0), next_of(held, mine, 1000.0 + REST_S)
    assert soon is not None and soon.since == 400.0
    assert late is not None and late.since == 1000.0 + REST_S
    older = TurnRecord(move=STRANGER, node=mine, until=1000.0)
    first = next_of(older, mine, 500.0)
    assert first is not None and first.since == 500.0


async def test_a_turn_is_neither_taken_nor_left_in_another_node_s_name() -> None:
    async with played_fleet() as fleet:
        turns, mine, others = turns_of(fleet), fleet.id(1), fleet.id(2)
        await give(fleet, STRANGER, mine, 100.0)
        before = turn_at(fleet)
        with pytest.raises(Forbidden, match=f"node {others} asks"):
            await turns.take(STRANGER, TurnRequest(app=APP, node=mine), others)
        said = await turns.take(STRANGER, TurnRequest(app=APP, node=others), others)
        assert said.node == mine
        await turns.leave(STRANGER, APP, others)
        assert turn_at(fleet) == before
        await turns.leave(STRANGER, APP, mine)
        assert turn_at(fleet) is None


async def test_a_turn_of_a_move_under_way_is_not_another_s_who_says_that_it_has_ended() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        move = await fleet.move(1, 0)
        await fleet.worker(1).api.call(PAUSE_MOVE, params=MoveParams(move_id=move.id))
        await eventually(fleet._clock, lambda: turn_at(fleet), 60, 0.01)
        lie = TurnRequest(app=APP, node=fleet.id(2), instead_of=move.id)
        assert (await turns_of(fleet).take(STRANGER, lie, fleet.id(2))).move == move.id
        await fleet.worker(1).api.call(CANCEL_MOVE, params=MoveParams(move_id=move.id))
        await give(fleet, move.id, fleet.id(1), TURN_S)
        assert (await turns_of(fleet).take(STRANGER, lie, fleet.id(2))).move == STRANGER


async def test_a_node_whose_time_is_over_lets_another_s_move_have_the_turn() -> None:
    async with played_fleet() as fleet:
        await apart(fleet)
        now, longest = fleet._clock.now(), TurnRequest(app=APP, node=fleet.id(2))
        over = TurnRecord(move=STRANGER, node=fleet.id(2), until=now, since=now - LONGEST_S)
        await fleet.hosts[0].world.store.write(lambda tx: tx.put(TURNS, AppName(APP), over))
        assert (await turns_of(fleet).take(STRANGER, longest, fleet.id(2))).move == ""
        waiting = await fleet.move_free(2, 1)
        await eventually(fleet._clock, lambda: bool(record_of(fleet, waiting).waits), 60, 0.001)
        assert "let those of others go first" in record_of(fleet, waiting).waits
        first = await fleet.move(1, 0)
        await eventually(fleet._clock, lambda: record_of(fleet, first).has_turn, 30, 0.0005)
        assert (await fleet.ended(1, first.id)).state is MoveState.DONE
        assert (await fleet.ended(2, waiting.id)).state is MoveState.DONE
        assert await fleet.settled() == []
