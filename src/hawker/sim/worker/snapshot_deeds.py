"""What clients of the simulated worker do with snapshots and copies of volumes, and what they then hold it to."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hawker.api.bodies import Volume
from hawker.clock import Clock
from hawker.ids import SnapshotId, VolumeId
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.worker.ledger import WorkerLedger
from hawker.sim.worker.operation import WorkerOperation, WorkerVerb
from hawker.worker.volumes.records import VolumeState
from hawker.worker.volumes.retention import DAY_S

Try: TypeAlias = Callable[[WorkerOperation, Callable[[SimWorker], Awaitable[Any]]], Awaitable[Any]]

SNAPSHOT_VERBS = frozenset({WorkerVerb.SNAPSHOT, WorkerVerb.RESTORE, WorkerVerb.FORK, WorkerVerb.TAKE_BACK})


class SnapshotOperations:
    """`attempt` makes a call and answers None when it was refused or never answered."""

    def __init__(self, ledger: WorkerLedger, clock: Clock, attempt: Try) -> None:
        self._ledger = ledger
        self._clock = clock
        self._attempt = attempt

    async def do(self, deed: WorkerOperation) -> None:
        volume_id = self._ledger.volumes.get(deed.label)
        if volume_id is None:
            return
        match deed.verb:
            case WorkerVerb.SNAPSHOT:
                await self._snapshot(deed, volume_id)
            case WorkerVerb.TAKE_BACK:
                await self._take_back(deed, volume_id)
            case WorkerVerb.FORK:
                await self._copy(deed, source_volume_id=volume_id)
            case _:
                snapshot_id = self._ledger.snapshots.get(deed.label)
                if snapshot_id is not None:
                    await self._copy(deed, snapshot_id=snapshot_id)

    async def _snapshot(self, deed: WorkerOperation, volume_id: VolumeId) -> None:
        asked = self._clock.now()
        made = await self._attempt(deed, lambda worker: worker.snapshot(volume_id))
        if made is not None:
            self._ledger.snapshots[deed.label] = SnapshotId(made.id)
            self._ledger.snapshot_promises.promised(SnapshotId(made.id), asked + made.retention_days * DAY_S)

    async def _copy(self, deed: WorkerOperation, **source: str) -> None:
        """Once it is made it is a volume as any other."""
        label = f"{deed.label}-{deed.number}"
        made: Volume | None = await self._attempt(deed, lambda worker: worker.volume(label, **source))
        if made is not None and made.state == VolumeState.CREATED:
            self._ledger.volumes[label] = VolumeId(made.id)
            self._ledger.volume_promises.created(VolumeId(made.id), made.size_gb)

    async def _take_back(self, deed: WorkerOperation, volume_id: VolumeId) -> None:
        turn = self._ledger.volume_promises.ask_back(volume_id)
        if await self._attempt(deed, lambda worker: worker.undelete_volume(volume_id)) is not None:
            self._ledger.volume_promises.had_back(volume_id, turn)
