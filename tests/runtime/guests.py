"""Machines of QEMU for the tests beside this file: each with a guest that boots for real."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.ids import InstanceId, MachineId, NodeId, new_machine_id, new_ulid
from hawker.runtime.microvm import MicroVMDriver
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec, ProcessSpec, VolumeDisk
from tests.microvm import lack_of_qemu, qemu_driver, root_disks
from tests.node_ids import own_node_id
from tests.waiting import eventually

CLOCK = SystemClock()
PATIENCE_S = 180.0  # emulated, beside as many others as there are
_DEADLINE_S = 600.0


@dataclass(slots=True)
class Guests:
    place: Path
    node_id: NodeId
    driver: MicroVMDriver
    made: list[MachineId] = field(default_factory=list)

    def renew(self) -> MicroVMDriver:
        return qemu_driver(self.node_id, self.place)

    def run(self, spec: InstanceSpec) -> RunDir:
        return RunDir(self.place / "machines" / spec.machine_id / "run")

    def spec(
        self, command: str, *, memory_mib: int = 128, volumes: tuple[VolumeDisk, ...] = (), args: tuple[str, ...] = ()
    ) -> InstanceSpec:
        machine_id = new_machine_id(CLOCK)
        self.made.append(machine_id)
        return InstanceSpec(
            machine_id=machine_id,
            instance_id=InstanceId(new_ulid(CLOCK)),
            hostname="under-test",
            processes=(ProcessSpec(argv=("/bin/sh", "-c", command), env={}),),
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=memory_mib, pids=64),
            root_disk=root_disks(self.place)(machine_id),
            volumes=volumes,
            kernel_args=args,
        )

    def said(self, spec: InstanceSpec) -> str:
        return b"".join(chunk.data for chunk in self.driver.output(spec.machine_id)).decode()

    async def hears(self, spec: InstanceSpec, words: str, since: int = 0) -> None:
        await eventually(partial(self._heard, spec, words, since), PATIENCE_S)

    def _heard(self, spec: InstanceSpec, words: str, since: int) -> bool:
        return words in self.said(spec)[since:]


@asynccontextmanager
async def guests(place: Path) -> AsyncIterator[Guests]:
    """Skips the test where none can be booted."""
    lack = lack_of_qemu()
    if lack:
        pytest.skip(lack)
    node_id = own_node_id()
    made = Guests(place, node_id, qemu_driver(node_id, place))
    try:
        with anyio.fail_after(_DEADLINE_S):
            yield made
    finally:
        for machine_id in made.made:
            await made.driver.destroy(machine_id)
