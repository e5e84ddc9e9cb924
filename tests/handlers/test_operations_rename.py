import pytest

from hawker.api.contract.machine import GET_MACHINE
from hawker.api.contract.machine_operation import RENAME_MACHINE, RenameRequest
from hawker.errors import AlreadyExists
from hawker.sim.node.sim_worker import SimWorker, params

pytestmark = pytest.mark.anyio


async def test_a_machine_is_renamed_while_it_runs_and_its_old_name_is_free(worker: SimWorker) -> None:
    first, second = await worker.started(), await worker.started()
    await worker.api.call(RENAME_MACHINE, params=params(first), body=RenameRequest(name="one"))
    with pytest.raises(AlreadyExists, match="'one' is taken"):
        await worker.api.call(RENAME_MACHINE, params=params(second), body=RenameRequest(name="one"))
    await worker.api.call(RENAME_MACHINE, params=params(first), body=RenameRequest(name="other"))
    await worker.api.call(RENAME_MACHINE, params=params(second), body=RenameRequest(name="one"))
    found = await worker.api.call(GET_MACHINE, params=params(second))
    assert (found.name, found.state) == ("one", "started")
