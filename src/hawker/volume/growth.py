"""Volumes that grow by themselves: one whose machine's mount has an `extend_threshold_percent` gets `add_size_gb` more
when so much of it is used, up to `size_gb_limit`. Nothing is stored; a full host only makes it wait.
"""

from hawker.clock import Clock
from hawker.config.machine import Mount
from hawker.errors import HawkerError
from hawker.log import bind
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord
from hawker.record.volume import VolumeRecord, VolumeState
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.volume.attachment import attached_to, mount_of, volume_id_of
from hawker.volume.disks import Disks, Usage, disk_of
from hawker.volume.operations import Volumes

_log = bind("hawker.growth")


def larger_size(volume: VolumeRecord, mount: Mount, usage: Usage, max_gb: int) -> int | None:
    """In GB; None while it has enough, or may have no more."""
    threshold, step = mount.extend_threshold_percent or 0, mount.add_size_gb or 0
    if not threshold or not step or usage.bytes_used * 100 < threshold * usage.bytes_total:
        return None
    size_gb = min(volume.size_gb + step, mount.size_gb_limit or max_gb, max_gb)
    return size_gb if size_gb > volume.size_gb else None


class Growth:
    def __init__(self, store: Store, settings: Settings, clock: Clock, disks: Disks | None, volumes: Volumes) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._disks = disks
        self._volumes = volumes

    async def serve(self, every_s: float) -> None:
        while True:
            try:
                await self.once()
            except (HawkerError, OSError) as error:
                _log.error("volumes are not looked at", extra={"error": str(error)})
            await self._clock.sleep(every_s)

    async def once(self) -> None:
        for _, machine in list(self._store.scan(MACHINES)):
            mount = mount_of(machine.config)
            if mount is not None and mount.extend_threshold_percent and machine.state is State.STARTED:
                await self._look(machine, mount)

    async def _look(self, machine: MachineRecord, mount: Mount) -> None:
        """One that could not grow in use has its size from the next launch on: until then, its figures are the old."""
        volume_id, disks = volume_id_of(machine.config), self._disks
        volume = None if volume_id is None else attached_to(self._store, volume_id, machine.id)
        if disks is None or volume is None or volume.state is not VolumeState.CREATED or volume.behind:
            return
        usage = await disks.usage(disk_of(volume))
        size_gb = None if usage is None else larger_size(volume, mount, usage, self._settings.max_volume_gb)
        if size_gb is None:
            return
        fields = {"volume": volume.id, "machine": machine.id, "size_gb": size_gb}
        try:
            await self._volumes.extend(volume.app, volume.id, size_gb)
            _log.info("volume grows by itself", extra=fields)
        except HawkerError as error:
            _log.warning("volume cannot grow", extra={**fields, "error": str(error)})
