"""Facts about what clients do with snapshots: what was answered is promised, what was not is not."""

from pathlib import Path
from typing import Any

import pytest

from hawker.ids import SnapshotId, VolumeId
from hawker.sim.harness.trace import Trace
from hawker.sim.node.world import MemoryWorld
from hawker.sim.worker.ledger import WorkerLedger
from hawker.sim.worker.operation import WorkerOperation, WorkerVerb
from hawker.sim.worker.snapshot_deeds import SnapshotOperations
from hawker.worker.volumes.retention import DAY_S

pytestmark = pytest.mark.anyio


def deed(verb: WorkerVerb) -> WorkerOperation:
    return WorkerOperation(7, 0.0, "ann", verb, "ann-1")


async def test_what_is_answered_is_promised_and_can_be_copied(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    ledger = WorkerLedger(stall.clock, Trace(False), lambda: None)
    async with stall.open() as worker:
        await worker.app()
        volume = await worker.volume("ann-1", size_gb=1)
        ledger.volumes["ann-1"] = VolumeId(volume.id)

        async def attempt(_: WorkerOperation, act: Any) -> Any:
            return await act(worker)

        deeds = SnapshotOperations(ledger, stall.clock, attempt)
        await deeds.do(deed(WorkerVerb.RESTORE))
        assert list(ledger.volumes) == ["ann-1"], "there is no snapshot yet"
        await deeds.do(deed(WorkerVerb.SNAPSHOT))
        await worker.at_rest()
        [(snapshot_id, until)] = ledger.snapshot_promises.kept_until.items()
        assert ledger.snapshots == {"ann-1": snapshot_id}
        assert until == pytest.approx(stall.clock.now() + 5 * DAY_S, abs=60)
        await deeds.do(deed(WorkerVerb.RESTORE))
        assert ledger.volumes["ann-1-7"] in stall.disks.files
        await deeds.do(deed(WorkerVerb.FORK))
        assert list(ledger.snapshot_promises.broken(worker.store, stall.clock.now())) == []
        await worker.delete_volume(volume.id)
        ledger.volume_promises.created(VolumeId(volume.id), 1)
        ledger.volume_promises.let_go(VolumeId(volume.id), ledger.volume_promises.ask_end(VolumeId(volume.id)))
        await deeds.do(deed(WorkerVerb.TAKE_BACK))
        assert list(ledger.volume_promises.broken(worker.store)) == []


async def test_what_is_not_answered_is_not_promised(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path)
    ledger = WorkerLedger(stall.clock, Trace(False), lambda: None)

    async def lost(_: WorkerOperation, act: object) -> None:
        return None

    deeds = SnapshotOperations(ledger, stall.clock, lost)
    await deeds.do(deed(WorkerVerb.SNAPSHOT))
    ledger.volumes["ann-1"] = VolumeId("vol_0000000000000001")
    ledger.snapshots["ann-1"] = SnapshotId("vs_0000000000000001")
    for verb in (WorkerVerb.SNAPSHOT, WorkerVerb.RESTORE, WorkerVerb.FORK, WorkerVerb.TAKE_BACK):
        await deeds.do(deed(verb))
    assert ledger.snapshot_promises.kept_until == {}
    assert list(ledger.volumes) == ["ann-1"]
