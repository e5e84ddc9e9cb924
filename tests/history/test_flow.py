from pathlib import Path

import pytest

from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.fsm.contract import WhenBusy
from hawker.fsm.run import State as RunState
from hawker.fsm.view import RunView
from hawker.history.archivist import ARCHIVE, Export, history_resource
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.machine import ARCHIVED
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


class Forgetful(DirectoryBackend):
    """Takes files, and has none of them."""

    async def put(self, key: str, file: Path) -> None:
        return None


@pytest.fixture
def stall(stall: MemoryWorld, tmp_path: Path) -> MemoryWorld:
    """Its archivist sleeps for a week."""
    stall.archive = Archive(DirectoryBackend(tmp_path / "kept"), tmp_path / "staging")
    stall.settings = type(stall.settings)(data_dir=tmp_path, reconcile_every_s=7 * 86_400.0)
    return stall


async def gone(worker: SimWorker) -> MachineId:
    machine_id = await worker.stopped()
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    return MachineId(machine_id)


async def run(worker: SimWorker, machine_id: MachineId) -> RunView:
    runner = worker.parts.runner

    def accept(tx: object) -> object:
        return runner.accept(tx, ARCHIVE, history_resource(machine_id), Export(), when_busy=WhenBusy.QUEUE)  # type: ignore[arg-type]

    run_id = await worker.store.write(accept)
    return await runner.wait(run_id, 3600)  # type: ignore[arg-type]


async def test_the_history_is_in_the_archive_before_the_store_may_forget(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await gone(worker)
    ended = await run(worker, machine_id)
    assert ended.state is RunState.DONE
    record = worker.store.get(ARCHIVED, machine_id)
    assert record is not None and stall.archive is not None
    assert (record.archive, record.bytes) == (stall.archive.name, await stall.archive.size(machine_id))


async def test_archiving_again_does_the_same_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await gone(worker)
    await run(worker, machine_id)
    assert stall.archive is not None
    first = await stall.archive.read(machine_id)
    assert (await run(worker, machine_id)).state is RunState.DONE
    assert await stall.archive.read(machine_id) == first


async def test_nothing_is_done_about_a_machine_that_is_not_destroyed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = MachineId(await worker.started())
    assert (await run(worker, machine_id)).state is RunState.DONE
    assert stall.archive is not None and await stall.archive.size(machine_id) is None
    assert worker.store.get(ARCHIVED, machine_id) is None


async def test_an_archive_that_did_not_arrive_is_not_confirmed(stall: MemoryWorld, tmp_path: Path) -> None:
    stall.archive = Archive(Forgetful(tmp_path / "kept"), tmp_path / "staging")
    async with stall.open() as worker:
        await worker.app()
        machine_id = await gone(worker)
        ended = await run(worker, machine_id)
        assert ended.state is RunState.FAILED and "has 0 of" in (ended.error or "")
        assert worker.store.get(ARCHIVED, machine_id) is None


async def test_a_prepared_file_that_was_lost_is_prepared_again(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    class Lossy(Archive):
        def is_written(self, machine_id: MachineId) -> bool:
            self._staged(machine_id).unlink()
            return super().is_written(machine_id)

    stall.archive = Lossy(DirectoryBackend(tmp_path / "lossy"), tmp_path / "staging")
    async with stall.open() as later:
        await later.app()
        assert (await run(later, await gone(later))).state is RunState.DONE


async def test_a_node_without_an_archive_says_so(stall: MemoryWorld) -> None:
    stall.archive = None
    async with stall.open() as worker:
        await worker.app()
        machine_id = await gone(worker)
        ended = await run(worker, machine_id)
        assert ended.state is RunState.FAILED and "start it with --archive" in (ended.error or "")
