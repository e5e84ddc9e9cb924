"""The end of a volume that was deleted: for a day it can be taken back as it was, then it is gone. `Volumes.delete`
lets go of it; the flow that removes the file is begun here, once its day is over.
"""

from hawker.clock import Clock
from hawker.errors import HawkerError, WrongState
from hawker.ids import AppName, VolumeId
from hawker.log import bind
from hawker.record.volume import VOLUMES, VolumeRecord, VolumeState
from hawker.store.contract import Store, Tx
from hawker.volume.operations import Volumes
from hawker.volume.table import VolumeTable

_log = bind("hawker.farewell")
_LEAVING = frozenset({VolumeState.SCHEDULING_DESTROY, VolumeState.PENDING_DESTROY})


class SoftDeletes:
    def __init__(self, store: Store, clock: Clock, volume_table: VolumeTable, volumes: Volumes) -> None:
        self._store = store
        self._clock = clock
        self._volume_table = volume_table
        self._volumes = volumes

    async def undelete(self, app: AppName, volume_id: str) -> VolumeRecord:
        """Raises `WrongState` when it was not deleted; one that is gone is `NotFound`."""

        def apply(tx: Tx) -> VolumeRecord:
            record = self._volume_table.find(tx, app, volume_id)
            if record.state not in _LEAVING:
                raise WrongState(f"volume {volume_id} is {record.state}, so there is nothing to take back")
            return self._volume_table.change(tx, record, state=VolumeState.CREATED, destroy_at=None)

        return await self._store.write(apply)

    async def empty(self) -> list[VolumeId]:
        """Begin the end of those whose day is over; which these are."""
        now, begun = self._clock.now(), []
        for _, record in list(self._store.scan(VOLUMES)):
            if record.state not in _LEAVING or record.destroy_at is None or record.destroy_at > now:
                continue
            try:
                await self._volumes.destroy(record.id)
            except HawkerError as error:
                _log.warning("a volume is not removed", extra={"volume": record.id, "error": str(error)})
                continue
            begun.append(record.id)
            _log.info("volume is removed", extra={"volume": record.id})
        return begun

    def shift(self, tx: Tx, seconds: float) -> None:
        """The wall clock was set: a day is as long as it would have been."""
        for _, record in list(tx.scan(VOLUMES)):
            if record.destroy_at is not None:
                self._volume_table.change(tx, record, destroy_at=record.destroy_at + seconds)
