"""A store and a fake driver with one guest that has a volume, around real files."""

from pathlib import Path

from hawker.clock import ManualClock
from hawker.ids import AppName, InstanceId, MachineId, VolumeId
from hawker.machine import State
from hawker.record.machine import MACHINES
from hawker.record.volume import VOLUMES, Fstype, VolumeRecord, VolumeState
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec, VolumeDisk
from hawker.sim.node.kit import GUEST_FEATURES
from hawker.store.memory_store import MemoryStore
from hawker.volume.attachment import volume_name
from hawker.volume.guest_disks import VolumeUse
from tests.contract.disks import VOLUME
from tests.worker.machines import NOW, machine

MACHINE = MachineId("00000000000001")


class Guest:
    """`run` and what follows move machine and record together, unless told."""

    def __init__(self, volume_id: VolumeId = VOLUME) -> None:
        self.volume_id = volume_id
        self.host = FakeHost(ManualClock())
        self.driver = FakeDriver(self.host, GUEST_FEATURES)
        self.store = MemoryStore()
        self.use = VolumeUse(self.store, self.driver)

    async def attach(self, state: State = State.STOPPED) -> None:
        volume = VolumeRecord(
            id=self.volume_id,
            app=AppName("stall"),
            name="data",
            region="local",
            size_gb=1,
            state=VolumeState.CREATED,
            fstype=Fstype.EXT4,
            encrypted=False,
            machine=MACHINE,
            snapshot_retention=5,
            auto_backup=False,
            created_at=NOW,
            updated_at=NOW,
        )
        await self.store.write(lambda tx: tx.put(VOLUMES, volume.id, volume))
        await self.turn(state)

    async def turn(self, state: State) -> None:
        """What the record says."""
        await self.store.write(lambda tx: tx.put(MACHINES, MACHINE, machine(MACHINE, state=state)))

    async def run(self, file: Path) -> None:
        """The guest has the volume."""
        spec = InstanceSpec(
            machine_id=MACHINE,
            instance_id=InstanceId("I1"),
            hostname="m",
            processes=(ProcessSpec(argv=("serve",), env={}),),
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=256, pids=100),
            volumes=(VolumeDisk(name=volume_name(self.volume_id), file=str(file), target="/data"),),
        )
        await self.attach(State.STARTED)
        await self.driver.start(spec)

    async def suspend(self) -> None:
        await self.driver.suspend(MACHINE)
        await self.turn(State.SUSPENDED)

    def end(self) -> None:
        self.host.end(MACHINE)
