"""Moves that begin later: once, at their time, whatever happened meanwhile."""

from datetime import UTC, datetime

import msgspec
import pytest

from hawker.api.contract.move import (
    CANCEL_MOVE,
    GET_MOVE,
    LIST_MOVES,
    PAUSE_MOVE,
    Move,
    MoveParams,
    MoveRequest,
)
from hawker.errors import BadRequest, Conflict, HawkerError, NotFound, NotServed, Unprocessable, WrongState
from hawker.machine import State
from hawker.record.move import MOVED, MOVES, SCHEDULED_MOVES, SIGNPOSTS_KEPT_S, MoveState
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import params
from hawker.time_window import DAY_S
from hawker.worker.moves.scheduled import FARTHEST_S, TRIED_S
from tests.sim.moves.fleets import PlayedFleet, played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

SUNDAY = "sun 02:00-04:00"


def moment(fleet: PlayedFleet, after_s: float) -> datetime:
    return datetime.fromtimestamp(fleet._clock.now() + after_s, UTC)


async def shown(fleet: PlayedFleet, move: Move) -> Move:
    return await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move.id))


async def listed(fleet: PlayedFleet) -> list[str]:
    answer = await fleet.worker(0).api.call(LIST_MOVES)
    return [each.state for each in answer.moves]


async def aged(fleet: PlayedFleet, **fields: float) -> None:
    """The one scheduled move of the first host, with other times, from now."""
    store = fleet.hosts[0].world.store
    ((key, record),) = store.scan(SCHEDULED_MOVES)
    times = {name: fleet._clock.now() + after_s for name, after_s in fields.items()}
    await store.write(lambda tx: tx.put(SCHEDULED_MOVES, key, msgspec.structs.replace(record, **times)))


async def begun(fleet: PlayedFleet, within_s: float) -> Move:
    """The one move that has ended at the first host."""
    store = fleet.hosts[0].world.store
    await eventually(fleet._clock, lambda: store.count(MOVES) > 0, within_s)
    ((move_id, _),) = store.scan(MOVES)
    await fleet.ended(0, move_id)
    return await fleet.worker(0).api.call(GET_MOVE, params=MoveParams(move_id=move_id))


async def test_a_move_begins_at_its_time_and_not_before() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move(0, 1, at=moment(fleet, 100), limit_mib_per_s=7)
        assert (made.state, made.to, made.generation) == ("scheduled", fleet.id(1), 0)
        await fleet._clock.sleep(95)
        assert await listed(fleet) == ["scheduled"] and fleet.hosts[0].world.store.count(MOVES) == 0
        done = await begun(fleet, 100)
        assert done.state is MoveState.DONE and await listed(fleet) == ["done"]
        assert await shown(fleet, made) == done and done.id != made.id
        ((_, record),) = fleet.hosts[0].world.store.scan(MOVES)
        assert record.limit_mib_per_s == 7
        await fleet.worker(1).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


async def test_losses_that_an_order_accepted_are_accepted_when_its_time_has_come() -> None:
    async with played_fleet() as fleet:
        fleet.hosts[0].world.disks.rot[fleet.volume] = frozenset({3})
        assert (await fleet.move(0, 1, at=moment(fleet, 10), accept_loss=True)).accept_loss
        done = await begun(fleet, 100)
        assert done.state is MoveState.DONE and len(done.lost) == 1


@pytest.mark.parametrize("power", [False, True])
async def test_a_move_begins_once_whenever_the_daemon_is_killed(power: bool) -> None:
    async with played_fleet() as fleet:
        await fleet.move_free(0, 1, at=moment(fleet, 60))
        for _ in range(12):
            await fleet._clock.sleep(6)
            await fleet.again(0, kept=0.0, power=power)
        assert (await begun(fleet, 200)).state is MoveState.DONE
        await fleet._clock.sleep(120)
        assert fleet.hosts[0].world.store.count(MOVES) == 1
        assert await fleet.settled() == []


async def test_a_window_is_waited_for() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move_free(0, 1, window=SUNDAY)
        assert made.at is not None and made.at.weekday() == 6 and made.window == SUNDAY
        await fleet._clock.sleep(60)
        assert await listed(fleet) == ["scheduled"]
        await aged(fleet, at=0, until=60)
        assert (await begun(fleet, 60)).state is MoveState.DONE


async def test_move_that_cannot_begin_is_tried_until_its_end_and_then_aborted() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move_free(0, 1, at=moment(fleet, 60))
        store, other = fleet.hosts[0].world.store, await fleet.move(0, 2)
        await fleet.worker(0).api.call(PAUSE_MOVE, params=MoveParams(move_id=other.id))
        ((_, record),) = store.scan(SCHEDULED_MOVES)
        assert record.until - record.at == TRIED_S
        await eventually(fleet._clock, lambda: any(each.reason for _, each in store.scan(SCHEDULED_MOVES)), 120)
        waits = await shown(fleet, made)
        assert waits.state == "scheduled" and f"move {other.id}" in waits.reason
        await aged(fleet, until=30)
        await fleet._clock.sleep(120)
        ended = await shown(fleet, made)
        assert ended.state is MoveState.ABORTED and f"move {other.id}" in ended.reason
        assert store.count(MOVES) == 1


async def test_move_that_missed_its_window_is_due_in_the_next_one() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move_free(0, 1, window="02:00-02:10")
        await fleet.hosts[0].kill()
        await aged(fleet, at=-DAY_S, until=600 - DAY_S)
        await fleet.hosts[0].begin(fleet._tasks)
        await fleet._clock.sleep(60)
        waits = await shown(fleet, made)
        assert (waits.state, waits.at) == ("scheduled", made.at) and "down when it was due" in waits.reason


async def test_volume_that_has_moved_meanwhile_is_not_moved_again() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move_free(0, 2, at=moment(fleet, 60))
        await fleet.ended(0, (await fleet.move_free(0, 1)).id)
        await fleet._clock.sleep(120)
        ended = await shown(fleet, made)
        assert ended.state is MoveState.ABORTED and f"has moved to node {fleet.id(1)}" in ended.reason
        post = fleet.hosts[0].world.store.get(MOVED, fleet.free)
        assert post is not None and post.to == fleet.id(1)


async def test_a_scheduled_move_is_cancelled_and_then_gone() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move_free(0, 1, at=moment(fleet, 30))
        api, named = fleet.worker(0).api, MoveParams(move_id=made.id)
        with pytest.raises(NotFound, match="not begun"):
            await api.call(PAUSE_MOVE, params=named)
        ended = await api.call(CANCEL_MOVE, params=named)
        assert (ended.state, ended.reason) == (MoveState.ABORTED, "cancelled by the user")
        await fleet._clock.sleep(120)
        assert await listed(fleet) == [] and fleet.hosts[0].world.store.count(SCHEDULED_MOVES) == 0


async def test_the_id_of_a_scheduled_move_answers_for_the_one_that_it_became() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move(0, 1, at=moment(fleet, 1))
        store = fleet.hosts[0].world.store
        await eventually(fleet._clock, lambda: store.count(MOVES) > 0, 60)
        ended = await fleet.worker(0).api.call(CANCEL_MOVE, params=MoveParams(move_id=made.id))
        assert ended.state is MoveState.ABORTED and ended.id != made.id and ended.at is None
        await fleet.worker(0).reaches(fleet.machine, State.STARTED)
        assert await fleet.settled() == []


async def test_a_scheduled_move_that_ended_is_forgotten_after_its_days() -> None:
    async with played_fleet() as fleet:
        await fleet.move_free(0, 1, at=moment(fleet, 1))
        await begun(fleet, 60)
        await aged(fleet, ended_at=60 - SIGNPOSTS_KEPT_S)
        store = fleet.hosts[0].world.store
        assert store.count(SCHEDULED_MOVES) == 1
        await fleet._clock.sleep(120)
        assert store.count(SCHEDULED_MOVES) == 0


async def test_a_machine_has_one_scheduled_move() -> None:
    async with played_fleet() as fleet:
        made = await fleet.move(0, 1, window=SUNDAY)
        with pytest.raises(Conflict, match=f"hawker moves cancel {made.id}"):
            await fleet.move(0, 2, at=moment(fleet, 60))
        assert (await fleet.move_free(0, 2, window=SUNDAY)).state == "scheduled"


@pytest.mark.parametrize(
    ("wish", "error", "why"),
    [
        (MoveRequest(at=datetime(2000, 1, 1, tzinfo=UTC)), BadRequest, "past"),
        (MoveRequest(at=datetime(2999, 1, 1, tzinfo=UTC)), BadRequest, f"{FARTHEST_S / DAY_S:.0f} days"),
        (MoveRequest(window="sunday"), BadRequest, "such as sun 02:00-04:00"),
        (MoveRequest(window=SUNDAY, at=datetime(2999, 1, 1, tzinfo=UTC)), BadRequest, "one of them"),
        (MoveRequest(window=SUNDAY, mode="tepid"), Unprocessable, "auto, cold, warm"),
        (MoveRequest(window=SUNDAY, mode="lazy"), NotServed, "lazy"),
        (MoveRequest(window=SUNDAY, to="00000001"), BadRequest, "already"),
    ],
)
async def test_a_time_or_order_that_makes_no_sense_is_refused(
    wish: MoveRequest, error: type[HawkerError], why: str
) -> None:
    async with played_fleet() as fleet:
        worker = fleet.worker(0)
        with pytest.raises(error, match=why):
            await worker.parts.scheduled_moves.of_volume(worker.record(fleet.machine).app, fleet.free, wish)
        with pytest.raises(WrongState, match="hawker machine move"):
            await worker.parts.scheduled_moves.of_volume(
                worker.record(fleet.machine).app, fleet.volume, MoveRequest(window=SUNDAY)
            )
        assert worker.parts.scheduled_moves.list() == []


async def test_a_dry_run_schedules_nothing() -> None:
    async with played_fleet() as fleet:
        assert (await fleet.move(0, 1, window=SUNDAY, dry_run=True)).state == "planned"
        assert fleet.hosts[0].world.store.count(SCHEDULED_MOVES) == 0
        assert params(fleet.machine).machine_id == fleet.machine
