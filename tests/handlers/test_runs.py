import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.run import (
    ABORT_RUN,
    GET_RUN,
    LIST_RUNS,
    RETRY_RUN,
    ListRunsQuery,
    RunList,
    RunParams,
    RunState,
)
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest
from hawker.errors import BadRequest, NotFound, WrongState
from hawker.machine import State
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def _list(worker: SimWorker, **query: object) -> RunList:
    return await worker.api.call(LIST_RUNS, query=ListRunsQuery(**query))  # type: ignore[arg-type]


async def test_the_runs_of_a_machine_tell_what_happened_to_it(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    found = (await _list(worker, resource_id=machine_id)).runs
    assert [(run.flow, run.state) for run in found] == [("stop", RunState.DONE), ("create", RunState.DONE)]
    run = await worker.api.call(GET_RUN, params=RunParams(run_id=found[1].id))
    assert [step.name for step in run.steps] == ["image", "rootfs", "volume", "network", "launch"]
    assert {(step.state, step.attempts) for step in run.steps} == {("done", 1)}


async def test_runs_are_narrowed_by_flow_and_state_and_come_in_pages(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.script("start", *[FakeFault(error=OSError("no"))] * 3)
    await worker.create()
    await worker.at_rest()
    for _ in range(4):
        await worker.stopped()
    assert len((await _list(worker, flow="create")).runs) == 5
    (failed,) = (await _list(worker, state=(RunState.FAILED,), limit=1)).runs
    assert failed.flow == "create" and failed.error is not None and "no" in failed.error
    seen, cursor = [], None
    for _ in range(3):
        page = await _list(worker, limit=2, cursor=cursor)
        seen += [run.id for run in page.runs]
        cursor = page.next_cursor
    assert len(seen) == len(set(seen)) == 6 and cursor is None
    assert seen == sorted(seen, reverse=True)


async def test_name_of_no_flow_is_refused(worker: SimWorker) -> None:
    assert (await _list(worker, flow="stop")).runs == ()
    with pytest.raises(BadRequest, match=r"there is no flow stpo: the flows are .*, stop, "):
        await _list(worker, flow="stpo")


async def test_pages_go_back_to_the_first_run(worker: SimWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        await worker.stopped()
    everything = [run.id for run in (await _list(worker, limit=500)).runs]
    oldest = everything[-1]
    assert [run.id for run in (await _list(worker, limit=1, cursor=everything[-2])).runs] == [oldest]
    assert (await _list(worker, limit=1, cursor=oldest)).runs == ()


async def test_a_run_under_way_shows_the_step_it_is_at(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.hold()
    machine = await worker.create()
    (run,) = (await _list(worker, resource_id=machine.id)).runs
    shown = await worker.api.call(GET_RUN, params=RunParams(run_id=run.id))
    assert run.state is RunState.ACTIVE and [(step.name, step.state) for step in shown.steps] == [("image", "running")]


async def test_an_operator_aborts_a_run_once(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.hold()
    machine = await worker.create()
    (run,) = (await _list(worker, resource_id=machine.id)).runs
    await worker.api.call(ABORT_RUN, params=RunParams(run_id=run.id))
    await worker.reaches(machine.id, State.DESTROYED)
    with pytest.raises(WrongState, match="has ended"):
        await worker.api.call(ABORT_RUN, params=RunParams(run_id=run.id))


async def test_a_done_run_has_nothing_to_retry(worker: SimWorker) -> None:
    machine_id = await worker.started()
    (run,) = (await _list(worker, resource_id=machine_id)).runs
    with pytest.raises(WrongState, match="nothing to retry"):
        await worker.api.call(RETRY_RUN, params=RunParams(run_id=run.id))


async def test_a_missing_run_and_a_bad_limit_are_refused(worker: SimWorker) -> None:
    for route in (GET_RUN, RETRY_RUN, ABORT_RUN):
        with pytest.raises(NotFound):
            await worker.api.call(route, params=RunParams(run_id="01J"))
    for limit in (0, 501):
        with pytest.raises(BadRequest, match="limit"):
            await _list(worker, limit=limit)


async def test_the_runs_of_a_volume_are_found_by_its_id(worker: SimWorker) -> None:
    body = CreateVolumeRequest(name="data", size_gb=1)
    volume = await worker.api.call(CREATE_VOLUME, params=AppParams(app_name=APP), body=body)
    answer = await worker.api.call(LIST_RUNS, query=ListRunsQuery(resource_id=volume.id))
    assert [(run.flow, run.resource_kind) for run in answer.runs] == [("volume_create", "volume")]
