from pathlib import Path

import anyio
import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.history import MACHINE_HISTORY, HistoryParams, Kept, MachineHistory
from hawker.api.grant import Everything
from hawker.api.route import Call, NoQuery
from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.errors import NotFound, Unavailable
from hawker.machine import State
from hawker.permission import Attempt
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.handlers import worker_handlers

pytestmark = pytest.mark.anyio


@pytest.fixture
def stall(stall: MemoryWorld, tmp_path: Path) -> MemoryWorld:
    stall.archive = Archive(DirectoryBackend(tmp_path / "kept"), tmp_path / "staging")
    return stall


async def _history(worker: SimWorker, machine_id: str) -> MachineHistory:
    return await worker.api.call(MACHINE_HISTORY, params=HistoryParams(machine_id=machine_id))


async def _destroyed(worker: SimWorker) -> str:
    machine_id = await worker.started(env={"KEY": "secret"})
    await worker.update(machine_id, env={"KEY": "other"})
    await worker.reaches(machine_id, State.STARTED)
    await worker.destroy(machine_id, force=True)
    await worker.reaches(machine_id, State.DESTROYED)
    return machine_id


async def _forgotten(worker: SimWorker, stall: MemoryWorld) -> str:
    machine_id = await _destroyed(worker)
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 3 * stall.settings.reconcile_every_s)
    assert worker.parts.runner.list() == []
    return machine_id


async def test_a_machine_that_runs_has_a_history(worker: SimWorker) -> None:
    machine_id = await worker.started()
    told = await _history(worker, machine_id)
    assert (told.id, told.app, told.state, told.kept) == (machine_id, APP, "started", Kept.NODE)
    assert [(event.type, event.status) for event in told.events] == [("launch", "created"), ("start", "started")]
    (run,) = told.runs
    assert (run.flow, run.state, [step.name for step in run.steps]) == (
        "create",
        "done",
        ["image", "rootfs", "volume", "network", "launch"],
    )


async def test_what_is_archived_is_told_as_it_was_while_it_was_here(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _destroyed(worker)
    here = await _history(worker, machine_id)
    assert here.kept is Kept.NODE and here.state == "destroyed"
    assert [version.user_config.env for version in here.versions] == [{"KEY": "secret"}, {"KEY": "other"}]
    assert [event.status for event in here.events if event.request and event.request.exit_event] == ["stopped"] * 2
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 3 * stall.settings.reconcile_every_s)
    there = await _history(worker, machine_id)
    assert there.kept is Kept.ARCHIVE
    assert (there.events, there.versions, there.runs) == (here.events, here.versions, here.runs)
    assert (there.name, there.updated_at, there.image_digest) == (here.name, here.updated_at, here.image_digest)


async def test_the_app_may_be_gone(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert (await _history(worker, machine_id)).app == APP


@pytest.mark.parametrize("machine_id", ["00000000000000", "no id", "..%2F..%2Fetc", ""])
async def test_an_unknown_machine_is_not_found(worker: SimWorker, machine_id: str) -> None:
    with pytest.raises(NotFound):
        await _history(worker, machine_id)


async def test_without_an_archive_what_was_dropped_is_not_found(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    stall.archive = None
    async with stall.open() as later:
        with pytest.raises(NotFound):
            await _history(later, machine_id)


async def test_a_damaged_archive_says_which_file_it_is(worker: SimWorker, stall: MemoryWorld, tmp_path: Path) -> None:
    machine_id = await _forgotten(worker, stall)
    (path,) = (tmp_path / "kept").glob("*/*.zst")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArchiveDamaged, match=f"{machine_id}.sqlite.zst cannot be read"):
        await _history(worker, machine_id)


class Silent(DirectoryBackend):
    """Never answers."""

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        await anyio.sleep_forever()
        raise AssertionError


async def test_an_archive_that_does_not_answer_is_not_waited_for_long(stall: MemoryWorld, tmp_path: Path) -> None:
    stall.archive = Archive(Silent(tmp_path / "kept"), tmp_path / "staging")
    async with stall.open() as worker:
        with pytest.raises(Unavailable, match="did not answer within 60 s"):
            await _history(worker, "00000000000000")
    assert list((tmp_path / "staging").iterdir()) == []


class Reader(Everything):
    """Of one app; notes what it was asked."""

    def __init__(self, app: str) -> None:
        super().__init__("ann")
        self._app = app

    def permits(self, attempt: Attempt) -> bool:
        return attempt.app == self._app


async def _as(worker: SimWorker, grant: Reader, machine_id: str) -> MachineHistory:
    params = HistoryParams(machine_id=machine_id)
    call = Call(params=params, query=NoQuery(), body=None, grant=grant, request_id="")
    answer: MachineHistory = await worker_handlers(worker.parts).of(MACHINE_HISTORY)(call)
    return answer


async def test_who_may_not_read_the_app_does_not_hear_of_it(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    assert (await _as(worker, Reader(APP), machine_id)).id == machine_id
    with pytest.raises(NotFound):
        await _as(worker, Reader("other"), machine_id)


async def test_a_later_app_of_the_same_name_does_not_inherit_histories(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    assert (await _as(worker, Reader(APP), machine_id)).id == machine_id
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    await worker.app()
    with pytest.raises(NotFound):
        await _as(worker, Reader(APP), machine_id)
    assert (await _history(worker, machine_id)).id == machine_id
