from typing import Any

import msgspec
import pytest

from hawker.api.contract.run import Kept, RunState
from hawker.archive.failure import ArchiveDamaged
from hawker.archive.history_file import History
from hawker.history.machine_history import answer, destroyed_history, live_history
from hawker.ids import MachineId
from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.archive.histories import history

pytestmark = pytest.mark.anyio


async def _of(worker: SimWorker, machine_id: str) -> History:
    with worker.store.snapshot() as reader:
        found = live_history(reader, MachineId(machine_id))
    assert found is not None
    return found


async def test_every_attempt_of_every_step_is_told(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.script("start", FakeFault(error=OSError("input/output error"), after=True))
    machine_id = await worker.started()
    found = await _of(worker, machine_id)
    assert [(step.step, step.attempt, step.outcome) for step in found.steps if step.step == "launch"] == [
        ("launch", 1, "retry"),
        ("launch", 2, "done"),
    ]
    assert [step.number for step in found.steps] == list(range(len(found.steps)))
    (run,) = answer(found, Kept.NODE).runs
    assert [(step.name, step.attempts) for step in run.steps][-2:] == [("launch", 1), ("launch", 2)]
    assert "input/output error" in (run.steps[-2].error or "")


async def test_a_history_has_the_config_and_no_lease(worker: SimWorker) -> None:
    machine = await worker.create(order={"lease_ttl": 300}, env={"KEY": "secret"})
    await worker.reaches(machine.id, State.STARTED)
    found = await _of(worker, machine.id)
    assert machine.nonce and machine.nonce not in msgspec.json.encode(found).decode()
    assert msgspec.json.decode(found.machine.config_json)["env"] == {"KEY": "secret"}
    assert msgspec.json.decode(found.machine.details_json)["network"]["private_ip"] == found.machine.private_ip


async def test_an_exit_is_told_as_the_api_tells_it(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(restart={"policy": "no"})
    stall.host.end(MachineId(machine_id), 3)
    await worker.reaches(machine_id, State.STOPPED)
    told = answer(await _of(worker, machine_id), Kept.NODE)
    (event,) = (event for event in told.events if event.type == "exit")
    (listed,) = await worker.exits(machine_id)
    assert event == listed


async def test_only_what_was_destroyed_is_for_the_archive(worker: SimWorker) -> None:
    machine_id = MachineId(await worker.stopped())
    assert destroyed_history(worker.store, machine_id) is None
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    found = destroyed_history(worker.store, machine_id)
    assert found is not None and found.machine.state == "destroyed"
    assert found == live_history(worker.store, machine_id)


def test_a_run_whose_state_is_not_known_here_is_shown() -> None:
    runs = tuple(msgspec.structs.replace(history().runs[0], state=state) for state in ("delayed", "done", "dreaming"))
    told = answer(msgspec.structs.replace(history(), runs=runs), Kept.ARCHIVE)
    assert [run.state for run in told.runs] == [RunState.QUEUED, RunState.DONE, RunState.ACTIVE]


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"image":1}', "null"])
def test_a_config_that_cannot_be_read_is_damage(text: str) -> None:
    version = msgspec.structs.replace(history().versions[0], config_json=text)
    with pytest.raises(ArchiveDamaged, match="MachineConfig"):
        answer(msgspec.structs.replace(history(), versions=(version,)), Kept.ARCHIVE)


def test_rows_written_by_a_newer_hawker_with_more_in_them_are_read() -> None:
    fields: dict[str, Any] = {"error": "why", "news": {"of": 2030}}
    event = msgspec.structs.replace(history().events[0], request_json=msgspec.json.encode(fields).decode())
    (told,) = answer(msgspec.structs.replace(history(), events=(event,)), Kept.ARCHIVE).events
    assert told.request is None and told.error == "why"
