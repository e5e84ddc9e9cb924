"""A real guest for attempts from inside: QEMU with a kernel, its disks, and root's shell in it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from hawker.clock import SystemClock
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.runtime.driver import ExecSpec
from hawker.runtime.microvm import MicroVMDriver, microvm_driver
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import FileSpec, InstanceLimits, InstanceSpec, ProcessSpec, RootDisk, VolumeDisk
from tests.guest.vm import MIB, make_erofs, make_ext4, make_tree, require_tools
from tests.kernel import kernels

CLOCK = SystemClock()
GUEST, NEIGHBOUR = MachineId("0123456789abcd"), MachineId("fedcba98765432")
BOOT_S = ANSWER_S = 240.0
FOREVER = "exec sleep 100000"


@dataclass(frozen=True, slots=True)
class Host:
    """With machines in `directory`, all of one image. `tree` is what is in the image."""

    directory: Path
    driver: MicroVMDriver
    image: Path

    def run(self, machine_id: MachineId = GUEST) -> RunDir:
        return RunDir(self.directory / "machines" / machine_id / "run")

    def disk(self, name: str, machine_id: MachineId = GUEST) -> Path:
        return self.directory / f"{name}-{machine_id}"

    async def start(
        self, command: str = FOREVER, *, machine_id: MachineId = GUEST, files: tuple[FileSpec, ...] = ()
    ) -> None:
        """Root runs `command`; its volume is at /data."""
        layer, volume = self.disk("layer", machine_id), self.disk("volume", machine_id)
        make_ext4(layer, 64 * MIB)
        make_ext4(volume, 32 * MIB)
        spec = InstanceSpec(
            machine_id=machine_id,
            instance_id=InstanceId(f"instance-of-{machine_id}"),
            hostname="box",
            processes=(ProcessSpec(argv=("/bin/sh", "-c", command), env={}),),
            files=files,
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=160, pids=64),
            root_disk=RootDisk(image=str(self.image), layer=str(layer)),
            volumes=(VolumeDisk(name="volume", file=str(volume), target="/data"),),
        )
        with anyio.fail_after(BOOT_S):
            await self.driver.start(spec)

    async def shell(self, command: str, machine_id: MachineId = GUEST) -> str:
        """What root's shell in the guest says, both streams, and its exit code as the last line."""
        with anyio.fail_after(ANSWER_S):
            argv = ("/bin/sh", "-c", f"({command}) 2>&1; echo $?")
            session = await self.driver.exec(machine_id, ExecSpec(argv=argv))
            said = b"".join([data async for _, data in session.output()])
            await session.close()
        return said.decode("utf-8", "replace").strip()


@asynccontextmanager
async def guest_host(directory: Path, node_id: NodeId, *, planted: Path | None = None) -> AsyncIterator[Host]:
    """Leaves nothing. `planted` is a tree that the image holds too. Skips the test where no guest can be had."""
    require_tools()
    tree = directory / "tree"
    make_tree(tree)
    if planted is not None:
        shutil.copytree(planted, tree, symlinks=True, dirs_exist_ok=True)
    make_erofs(tree, directory / "image")
    driver = microvm_driver(
        "qemu",
        node_id,
        machines=directory / "machines",
        crun_state=directory / "crun",
        kernels=kernels(),
        clock=CLOCK,
    )
    await driver.check()
    try:
        yield Host(directory, driver, directory / "image")
    finally:
        for machine_id in (GUEST, NEIGHBOUR):
            await driver.destroy(machine_id)
