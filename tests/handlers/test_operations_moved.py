"""Calls that have found the machine here while the transaction that gives it to another node was about to commit."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from hawker.api.contract.machine_operation import RENAME_MACHINE, RenameRequest
from hawker.errors import Moved
from hawker.ids import AppName, MachineId, NodeId
from hawker.record.move import MOVED, MovedRecord
from hawker.sim.node.sim_worker import APP, SimWorker, params

pytestmark = pytest.mark.anyio


async def _rename(worker: SimWorker, machine_id: str) -> None:
    await worker.api.call(RENAME_MACHINE, params=params(machine_id), body=RenameRequest(name="other"))


async def _lease(worker: SimWorker, machine_id: str) -> None:
    await worker.lease(machine_id, 60)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda worker, machine_id: worker.set_metadata(machine_id, "a", "2"), id="metadata"),
        pytest.param(_rename, id="rename"),
        pytest.param(_lease, id="lease"),
        pytest.param(lambda worker, machine_id: worker.release(machine_id, None), id="release"),
    ],
)
async def test_a_machine_that_has_gone_meanwhile_is_not_changed_here(
    worker: SimWorker, call: Callable[[SimWorker, str], Awaitable[None]]
) -> None:
    machine_id = await worker.stopped()
    before, went = worker.record(machine_id), MovedRecord(app=AppName(APP), to=NodeId("n2"), generation=2, at=0.0)
    refused: list[str] = []

    async def change() -> None:
        with pytest.raises(Moved) as error:
            await call(worker, machine_id)
        refused.append(error.value.node)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.store.write, lambda tx: tx.put(MOVED, MachineId(machine_id), went))
        tasks.start_soon(change)
    assert refused == ["n2"] and worker.record(machine_id) == before
