import pytest

from hawker.errors import NotFound, NotServed, Unavailable
from hawker.ids import MachineId
from hawker.record.machine import machine_resource
from hawker.sim.node.sim_worker import SimWorker
from hawker.worker.lifecycle import FLOWS
from hawker.worker.lifecycle.deps import LateNodes, LateRuns


def test_others_that_are_not_there_yet_may_be_asked_again() -> None:
    late = LateNodes()
    with pytest.raises(Unavailable):
        late.there  # noqa: B018 - it is what raises
    with pytest.raises(NotServed, match="in no cluster"):
        late.check()


def test_runs_cannot_be_begun_before_there_is_a_runner() -> None:
    with pytest.raises(AssertionError):
        LateRuns().accept(None, "start", None, None)  # type: ignore[arg-type]


pytestmark = pytest.mark.anyio


def test_a_machines_runs_are_found_by_its_id() -> None:
    resource = machine_resource(MachineId("1"))
    assert (resource.kind, resource.id) == ("machine", "1")


def test_every_flow_is_served_once() -> None:
    names = [flow.name for flow in FLOWS]
    of_machines = {"create", "destroy", "rest", "restart", "start", "stop", "update"}
    of_volumes = {"volume_create", "volume_destroy", "volume_extend"}
    assert len(names) == len(set(names)) and {"archive", "pull"} | of_machines | of_volumes <= set(names)


async def test_a_machine_that_is_not_there_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="machine not found"):
        worker.parts.deps.table.get(worker.store, MachineId("1"))
