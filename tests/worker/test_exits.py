import pytest

from hawker.clock import ManualClock
from hawker.ids import InstanceId
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MACHINES, MachineRecord
from hawker.runtime.driver import Exit
from hawker.sim.node.sim_worker import config_of
from hawker.store.memory_store import MemoryStore
from hawker.worker.changes import Changes
from hawker.worker.exits import Followup, record_exit
from hawker.worker.table import MachineTable
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio
INSTANCE = InstanceId("I1")


class Stall:
    """A table with one machine in it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.table = MachineTable(ManualClock(NOW), Changes())

    async def put(self, record: MachineRecord) -> MachineRecord:
        await self.store.write(lambda tx: self.table.insert(tx, record))
        return record

    async def exit(self, record: MachineRecord, code: int, **fields: object) -> Followup | None:
        exit = Exit(exit_code=code, exited_at=NOW, **fields)  # type: ignore[arg-type]
        return await self.store.write(
            lambda tx: record_exit(tx, self.table, tx.get(MACHINES, record.id) or record, INSTANCE, exit)
        )


@pytest.fixture
def stall() -> Stall:
    return Stall()


async def test_a_clean_exit_rests_and_gives_back_the_room(stall: Stall) -> None:
    followup = await stall.exit(await stall.put(machine()), 0)
    assert followup is not None and followup.rest and followup.restart_after_s is None
    assert followup.record.state is State.STOPPED
    assert stall.table.used(stall.store) == Resources()


async def test_a_failure_is_started_again_and_keeps_the_room(stall: Stall) -> None:
    record = await stall.put(machine())
    followup = await stall.exit(record, 3)
    assert followup is not None and followup.restart_after_s == 0.5
    assert followup.record.state is State.STARTING and followup.record.restarts == 1
    assert stall.table.used(stall.store) == record.holds


async def test_auto_destroy_follows_an_exit_that_is_not_restarted(stall: Stall) -> None:
    followup = await stall.exit(await stall.put(machine(config=config_of(auto_destroy=True))), 0)
    assert followup is not None and followup.destroy and followup.record.state is State.DESTROYING


async def test_an_exit_is_recorded_once(stall: Stall) -> None:
    record = await stall.put(machine())
    assert await stall.exit(record, 0) is not None
    assert await stall.exit(record, 9) is None
    exits = [event for event in stall.table.events(stall.store, record.id, 10) if event.type == "exit"]
    assert len(exits) == 1


async def test_the_exit_of_another_instance_is_not_recorded(stall: Stall) -> None:
    record = await stall.put(machine(running=None))
    assert await stall.exit(record, 1) is None


@pytest.mark.parametrize("state", [State.STOPPING, State.RESTARTING, State.UPDATING, State.DESTROYING])
async def test_a_flow_that_ends_the_instance_keeps_deciding(stall: Stall, state: State) -> None:
    followup = await stall.exit(await stall.put(machine(state=state)), 1)
    assert followup is not None
    assert (followup.rest, followup.destroy, followup.restart_after_s) == (False, False, None)
    assert followup.record.state is state
    event = stall.table.events(stall.store, followup.record.id, 1)[0]
    assert event.detail is not None and event.detail.requested_stop


@pytest.mark.parametrize("state", [State.SUSPENDING, State.SUSPENDED])
async def test_a_suspended_machine_stays_off_whatever_its_policy(stall: Stall, state: State) -> None:
    record = machine(state=state, config=config_of(restart={"policy": "always"}, auto_destroy=True))
    followup = await stall.exit(await stall.put(record), 137)
    assert followup is not None and followup.rest and followup.restart_after_s is None and not followup.destroy
    assert followup.record.state is State.STOPPED and followup.record.holds == Resources()
    (event, *_) = stall.table.events(stall.store, record.id, 1)
    assert event.detail is not None and event.detail.error == "it was suspended: the next start is a cold one"


async def test_the_event_tells_an_oom_kill_and_its_signal(stall: Stall) -> None:
    record = await stall.put(machine())
    await stall.exit(record, 137, signal=9, oom_killed=True)
    event = stall.table.events(stall.store, record.id, 1)[0]
    assert event.detail is not None and event.detail.exit is not None
    seen = event.detail.exit
    assert (seen.oom_killed, seen.signal, seen.exit_code) == (True, 9, 137)
    assert event.detail.restarting and event.detail.restart_count == 1
