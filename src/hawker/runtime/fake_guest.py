"""The fake driver's machines with kernels of their own: they are suspended by a snapshot, which may be lost, and have
their volumes mounted by themselves.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hawker.errors import NotFound, SnapshotLost, Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Phase
from hawker.runtime.fake_host import FakeHost, Instance
from hawker.runtime.guest_volumes import VolumeUsage
from hawker.runtime.spec import VolumeDisk

BLOCK_BYTES = 4096
_LOST = "the snapshot cannot be used: its checksum does not match"
_KILLED = 128 + 9


def restore(host: FakeHost, instance: Instance) -> None:
    """Let a suspended instance go on. Raises `SnapshotLost`, and it has ended, when its memory was spoilt."""
    machine_id = instance.spec.machine_id
    if machine_id not in host.memories or machine_id not in host.spoilt:
        return host.resume(instance)
    now = host.clock.now()
    host.lose(instance, Exit(exit_code=_KILLED, signal=9, exited_at=now, fault=_LOST))
    raise SnapshotLost(f"machine {machine_id} cannot be resumed: {_LOST}")


class FakeGuest:
    """Keeps `GuestVolumes` for the instances of a host. What a guest has been told lives on the host."""

    def __init__(self, host: FakeHost) -> None:
        self._guests = host

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        self._volume(machine_id, name)
        self._guests.volume_sizes[machine_id, name] = size_bytes

    @asynccontextmanager
    async def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AsyncIterator[None]:
        """An instance that ends meanwhile lets go."""
        instance, began = self._volume(machine_id, name)[0], self._guests.clock.monotonic()
        self._guests.still.add((machine_id, name))
        try:
            yield
        finally:
            self._guests.still.discard((machine_id, name))
        if instance.exit is not None or self._guests.clock.monotonic() - began > timeout_s:
            raise Unavailable(f"the guest of machine {machine_id} let go of its volume")

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        self._volume(machine_id, name)
        blocks = self._guests.volume_sizes.get((machine_id, name), 0) // BLOCK_BYTES
        return VolumeUsage(block_size=BLOCK_BYTES, blocks=blocks, blocks_free=blocks, blocks_avail=blocks)

    def _volume(self, machine_id: MachineId, name: str) -> tuple[Instance, VolumeDisk]:
        instance = self._guests.look(machine_id)
        found = [] if instance is None else [volume for volume in instance.spec.volumes if volume.name == name]
        if instance is None or not found:
            raise NotFound(f"machine {machine_id} has no volume {name}")
        if instance.phase is not Phase.RUNNING:
            raise WrongState(f"machine {machine_id} does not run")
        return instance, found[0]
