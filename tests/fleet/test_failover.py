"""Spares are started once for each loss of a host, and what comes back gives way, on a whole worker."""

from collections.abc import Mapping, Sequence

import pytest

from hawker.errors import Unavailable
from hawker.fleet.failover import ALIVE, DOWN, Spare, Takeover, Watched
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State
from hawker.record.move import OPEN_MOVE_OF, MovePointer
from hawker.record.node import FENCED, TAKEOVERS
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.up.fleet_wiring import failover_of

pytestmark = pytest.mark.anyio

LOST = NodeId("aaaaaaaa")
OTHER = NodeId("bbbbbbbb")
WATCHED = MachineId("d0000000000001")


class Seen:
    """A `Sight` that a test sets."""

    def __init__(self, me: NodeId) -> None:
        self.said: dict[NodeId, str] = {me: ALIVE, LOST: ALIVE, OTHER: ALIVE}
        self.rows = {WATCHED: Watched(id=WATCHED, app=AppName(APP), owner=LOST, runs=True, seen=1.0)}
        self.taken: list[Takeover] = []
        self.mine: list[Takeover] = []
        self.agree = 1
        self.away = False
        self.asked = 0

    async def fates(self) -> Mapping[NodeId, str]:
        return self.said

    async def watched(self, machine_id: MachineId) -> Watched | None:
        return self.rows.get(machine_id)

    async def spares(self, machine_id: MachineId) -> Sequence[Spare]:
        return []

    async def takeovers(self, machine_id: MachineId) -> Sequence[Takeover]:
        return self.taken

    async def taken_from(self, owner: NodeId) -> Sequence[Takeover]:
        return self.mine

    async def is_away(self, owner: NodeId) -> bool:
        return self.away

    async def witnesses(self, owner: NodeId) -> int:
        self.asked += 1
        return self.agree


class Fleet:
    """A worker with a spare, and what it sees."""

    def __init__(self, worker: SimWorker) -> None:
        self.worker = worker
        self.seen = Seen(worker.parts.node.id)
        self.sentinel = failover_of(worker.parts, self.seen)

    def state(self, machine_id: str) -> State:
        return self.worker.record(machine_id).state

    def starts(self, machine_id: str) -> int:
        return self.worker.events(machine_id).count("start/started")


@pytest.fixture
def fleet(worker: SimWorker) -> Fleet:
    return Fleet(worker)


async def spare(fleet: Fleet) -> str:
    return await fleet.worker.stopped(standbys=(WATCHED,))


async def test_a_spare_stays_stopped_while_the_host_is_there(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    for _ in range(3):
        await fleet.sentinel.look()
    assert (fleet.state(machine_id), fleet.seen.asked) == (State.STOPPED, 0)


async def test_a_spare_is_started_once_for_one_loss(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    fleet.seen.said[LOST] = DOWN
    await fleet.sentinel.look()
    await fleet.worker.reaches(machine_id, State.STARTED)
    await fleet.sentinel.look()
    await fleet.worker.stop(machine_id)
    await fleet.worker.reaches(machine_id, State.STOPPED)
    await fleet.sentinel.look()
    assert (fleet.state(machine_id), fleet.starts(machine_id)) == (State.STOPPED, 1)


async def test_a_machine_of_another_app_is_not_taken_over_from(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    fleet.seen.rows[WATCHED] = Watched(id=WATCHED, app=AppName("beta"), owner=LOST, runs=True, seen=1.0)
    fleet.seen.said[LOST] = DOWN
    await fleet.sentinel.look()
    await fleet.worker.start(machine_id)
    await fleet.worker.reaches(machine_id, State.STARTED)
    await fleet.sentinel.look()
    assert fleet.starts(machine_id) == 1 and not list(fleet.worker.store.scan(TAKEOVERS))


async def test_another_loss_starts_it_again(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    fleet.seen.said[LOST] = DOWN
    await fleet.sentinel.look()
    await fleet.worker.reaches(machine_id, State.STARTED)
    await fleet.worker.stop(machine_id)
    await fleet.worker.reaches(machine_id, State.STOPPED)
    fleet.seen.rows[WATCHED] = Watched(id=WATCHED, app=AppName(APP), owner=LOST, runs=True, seen=2.0)
    await fleet.sentinel.look()
    await fleet.worker.reaches(machine_id, State.STARTED)
    assert fleet.starts(machine_id) == 2


async def test_nothing_is_started_without_a_witness(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    fleet.seen.said[LOST], fleet.seen.agree = DOWN, 0
    await fleet.sentinel.look()
    assert fleet.state(machine_id) is State.STOPPED
    fleet.seen.agree = 1
    await fleet.sentinel.look()
    await fleet.worker.reaches(machine_id, State.STARTED)


async def test_one_that_is_started_by_hand_while_it_may_not_decide_has_taken_over(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    fleet.seen.said = {fleet.worker.parts.node.id: ALIVE, LOST: DOWN}
    await fleet.sentinel.look()
    assert fleet.state(machine_id) is State.STOPPED
    await fleet.worker.start(machine_id)
    await fleet.worker.reaches(machine_id, State.STARTED)
    for _ in range(2):
        await fleet.sentinel.look()
    (takeover,) = [record for _, record in fleet.worker.store.scan(TAKEOVERS)]
    assert (takeover.machine, takeover.spare, takeover.seen) == (WATCHED, machine_id, 1.0)


async def test_one_that_ran_before_the_loss_has_taken_over_nothing(fleet: Fleet) -> None:
    machine_id = await spare(fleet)
    await fleet.worker.start(machine_id)
    await fleet.worker.reaches(machine_id, State.STARTED)
    fleet.seen.said = {fleet.worker.parts.node.id: ALIVE, LOST: DOWN}
    await fleet.sentinel.look()
    assert not list(fleet.worker.store.scan(TAKEOVERS))


async def test_a_new_daemon_knows_what_was_taken_over(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        fleet = Fleet(worker)
        machine_id = await spare(fleet)
        fleet.seen.said[LOST] = DOWN
        await fleet.sentinel.look()
        await worker.reaches(machine_id, State.STARTED)
        await worker.stop(machine_id)
        await worker.reaches(machine_id, State.STOPPED)
    async with stall.open() as worker:
        again = Fleet(worker)
        again.seen.said[LOST] = DOWN
        worker.tasks.start_soon(again.sentinel.serve)
        await stall.clock.sleep(10)
        assert again.state(machine_id) is State.STOPPED
        assert [record.spare for _, record in worker.store.scan(TAKEOVERS)] == [machine_id]


async def test_a_machine_that_was_taken_over_is_ended_once(fleet: Fleet) -> None:
    machine_id = await fleet.worker.started()
    fleet.seen.mine = [Takeover(machine=MachineId(machine_id), spare=MachineId("e0000000000001"), seen=1.0)]
    await fleet.sentinel.look()
    await fleet.worker.reaches(machine_id, State.STOPPED)
    assert fleet.worker.store.get(FENCED, machine_id) is not None
    await fleet.worker.start(machine_id)
    await fleet.worker.reaches(machine_id, State.STARTED)
    await fleet.sentinel.look()
    assert fleet.state(machine_id) is State.STARTED


async def test_a_machine_that_cannot_give_way_keeps_no_other_from_it_and_no_spare_from_a_start(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    moving, other, spare_id = await fleet.worker.started(), await fleet.worker.started(), await spare(fleet)
    pointer = MovePointer(move="01J00000000000000000000000")
    await fleet.worker.store.write(lambda tx: tx.put(OPEN_MOVE_OF, moving, pointer))
    by = MachineId("e0000000000001")
    fleet.seen.mine = [Takeover(machine=MachineId(each), spare=by, seen=1.0) for each in (moving, other)]
    fleet.seen.said[LOST] = DOWN
    await fleet.sentinel.look()
    await fleet.sentinel.look()
    await fleet.worker.reaches(other, State.STOPPED)
    await fleet.worker.reaches(spare_id, State.STARTED)
    assert fleet.state(moving) is State.STARTED and fleet.worker.store.get(FENCED, moving) is None
    told = [record for record in caplog.records if record.message == "machine cannot give way to its spare"]
    assert [vars(record)["machine"] for record in told] == [moving]
    await fleet.worker.store.write(lambda tx: tx.delete(OPEN_MOVE_OF, moving))  # its move was cancelled
    await fleet.sentinel.look()
    await fleet.worker.reaches(moving, State.STOPPED)


async def test_takeovers_are_forgotten_with_their_machines(fleet: Fleet) -> None:
    spare_id, fenced_id = await spare(fleet), await fleet.worker.started()
    fleet.seen.said[LOST] = DOWN
    fleet.seen.mine = [Takeover(machine=MachineId(fenced_id), spare=MachineId("e0000000000001"), seen=1.0)]
    await fleet.sentinel.look()
    await fleet.worker.reaches(spare_id, State.STARTED)
    store = fleet.worker.store
    assert (store.count(TAKEOVERS), store.count(FENCED)) == (1, 1)
    fleet.seen.said[LOST], fleet.seen.mine = ALIVE, []
    for machine_id in (spare_id, fenced_id):
        await fleet.worker.destroy(machine_id, force=True)
        await fleet.worker.reaches(machine_id, State.DESTROYED)
    await fleet.sentinel.look()
    assert (store.count(TAKEOVERS), store.count(FENCED)) == (0, 0)


async def test_a_fleet_that_cannot_be_asked_keeps_nothing_from_running(fleet: Fleet, stall: MemoryWorld) -> None:
    machine_id = await fleet.worker.started()

    async def away(owner: NodeId) -> Sequence[Takeover]:
        raise Unavailable("the catalog is away")

    fleet.seen.taken_from = away  # type: ignore[method-assign]
    fleet.worker.tasks.start_soon(fleet.sentinel.serve)
    await stall.clock.sleep(5)
    assert fleet.state(machine_id) is State.STARTED
