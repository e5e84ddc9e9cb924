"""The drivers that the contract suite is run against. A new one is one more entry in `RIGS`."""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from hawker.clock import SystemClock
from hawker.host.cgroup import find_hierarchies
from hawker.host.mount import mounts
from hawker.ids import InstanceId, MachineId, NodeId, new_machine_id, new_ulid
from hawker.runtime.container import container_driver
from hawker.runtime.driver import LostPart, NodeDriver
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.runtime.process import process_driver
from hawker.runtime.spec import FileSpec, InstanceLimits, InstanceSpec, ProcessSpec, RootDisk
from tests.microvm import lack_of_qemu, qemu_driver, root_disks
from tests.node_ids import own_node_id
from tests.rootfs import host_programs
from tests.vmm import node

CLOCK = SystemClock()


class MakeRootfs(Protocol):
    async def __call__(self, machine_id: MachineId) -> str: ...


@dataclass(slots=True)
class Rig:
    """A host with a driver. `renew` gives the driver of a new daemon on that host. `kill_pilot` ends process 1 of a
    machine from outside; `lose_directory` and `lose_cgroup` take something from a running one. `real` runs programs: a
    shell and coreutils are there. Where a boot takes its time, `boot_s`, what is tried often elsewhere is tried less.
    """

    driver: NodeDriver
    renew: Callable[[], NodeDriver]
    kill_pilot: Callable[[MachineId], Awaitable[None]]
    lose_directory: Callable[[MachineId], None]
    lose_cgroup: Callable[[MachineId], None] | None = None
    real: bool = True
    make_rootfs: MakeRootfs | None = None
    root_disk: Callable[[MachineId], RootDisk] | None = None
    boot_s: float = 0.0
    made: list[MachineId] = field(default_factory=list)

    async def spec(
        self,
        *commands: str | tuple[str, ...],
        env: dict[str, str] | None = None,
        files: tuple[FileSpec, ...] = (),
        user: str = "",
        tty: bool = False,
        stdin: bool = False,
        again: InstanceSpec | None = None,
    ) -> InstanceSpec:
        """A machine with one process per command; a string is for the shell. `again`: the same machine once more."""
        machine_id = again.machine_id if again is not None else new_machine_id(CLOCK)
        self.made.append(machine_id)
        argvs = [("/bin/sh", "-c", command) if isinstance(command, str) else command for command in commands]
        return InstanceSpec(
            machine_id=machine_id,
            instance_id=InstanceId(new_ulid(CLOCK)),
            hostname="under-test",
            processes=tuple(ProcessSpec(argv=argv, env=env or {}, user=user, tty=tty, stdin=stdin) for argv in argvs),
            files=files,
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=128, pids=64),
            max_memory_mib=256,
            rootfs=None if self.make_rootfs is None else await self.make_rootfs(machine_id),
            root_disk=None if self.root_disk is None else self.root_disk(machine_id),
        )

    async def started(self, *commands: str | tuple[str, ...], tty: bool = False, stdin: bool = False) -> InstanceSpec:
        spec = await self.spec(*commands, tty=tty, stdin=stdin)
        await self.driver.prepare(spec)
        await self.driver.start(spec)
        return spec

    async def destroy_all(self) -> None:
        driver = self.renew()
        for machine_id in self.made:
            await driver.destroy(machine_id)


MakeRig = Callable[[Path], AbstractAsyncContextManager[Rig]]


@asynccontextmanager
async def process_rig(place: Path) -> AsyncIterator[Rig]:
    def renew() -> NodeDriver:
        return process_driver(place / "machines", CLOCK)

    driver = renew()
    yield Rig(
        driver=driver,
        renew=renew,
        kill_pilot=lambda machine_id: kill_from_outside(driver, machine_id),
        lose_directory=lambda machine_id: shutil.rmtree(place / "machines" / machine_id / "run"),
    )


async def kill_from_outside(driver: NodeDriver, machine_id: MachineId) -> None:
    pid = (await driver.inspect(machine_id)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def container_rig(place: Path, launcher: LauncherChoice = LauncherChoice.HAWKER) -> AsyncIterator[Rig]:
    """Containers with copies of the host's programs, on the host's network."""
    node_id = own_node_id()

    def renew() -> NodeDriver:
        return container_driver(node_id, place / "machines", place / "crun", CLOCK, launcher=launcher)

    async def make_rootfs(machine_id: MachineId) -> str:
        return str(host_programs(place / "roots" / machine_id))

    driver = renew()
    await driver.check()
    kill = partial(kill_from_outside, driver)
    v1 = bool(find_hierarchies(mounts()).v1)
    yield Rig(
        driver=driver,
        renew=renew,
        kill_pilot=kill,
        lose_directory=lambda machine_id: shutil.rmtree(place / "machines" / machine_id / "run"),
        lose_cgroup=partial(take_out_of_groups, node_id) if v1 else None,
        make_rootfs=make_rootfs,
    )


@asynccontextmanager
async def crun_rig(place: Path) -> AsyncIterator[Rig]:
    async with container_rig(place, LauncherChoice.CRUN) as rig:
        yield rig


def take_out_of_groups(node_id: NodeId, machine_id: MachineId) -> None:
    """Every process of the machine into the groups above, and its own groups away."""
    for tree in find_hierarchies(mounts()).trees():
        group = tree / f"hawker-{node_id[:4]}" / machine_id
        for pid in (group / "cgroup.procs").read_text().split():
            (tree / "cgroup.procs").write_text(pid)
        group.rmdir()


@asynccontextmanager
async def fake_rig(place: Path) -> AsyncIterator[Rig]:
    """Time passes as it does for the others."""
    host = FakeHost(CLOCK)

    async def kill(machine_id: MachineId) -> None:
        host.end(machine_id, 137, signal=signal.SIGKILL)

    yield Rig(
        driver=FakeDriver(host),
        renew=lambda: FakeDriver(host),
        kill_pilot=kill,
        lose_directory=host.lose_directory,
        lose_cgroup=lambda machine_id: host.worn.update({machine_id: {LostPart.CGROUP}}),
        real=False,
    )


@asynccontextmanager
async def api_rig(name: str, place: Path) -> AsyncIterator[Rig]:
    """A VMM that is driven by its API: the real one where it boots a kernel, else its stand-in, see tests/vmm."""
    node_id = own_node_id()

    def renew() -> NodeDriver:
        return node.driver(name, node_id, place)

    async def kill(machine_id: MachineId) -> None:
        node.kill_vmm(place, machine_id)

    v1 = bool(find_hierarchies(mounts()).v1)
    yield Rig(
        driver=renew(),
        renew=renew,
        kill_pilot=kill,
        lose_directory=lambda machine_id: shutil.rmtree(place / "machines" / machine_id / "run"),
        lose_cgroup=partial(take_out_of_groups, node_id) if v1 else None,
        root_disk=node.root_disks(name, place),
    )


@asynccontextmanager
async def qemu_rig(place: Path) -> AsyncIterator[Rig]:
    """Guests with kernels of their own, emulated: a boot takes seconds."""
    lack = lack_of_qemu()
    if lack:
        pytest.skip(lack)
    node_id = own_node_id()

    def renew() -> NodeDriver:
        return qemu_driver(node_id, place)

    async def kill(machine_id: MachineId) -> None:
        node.kill_vmm(place, machine_id)

    driver = renew()
    await driver.check()
    v1 = bool(find_hierarchies(mounts()).v1)
    yield Rig(
        driver=driver,
        renew=renew,
        kill_pilot=kill,
        lose_directory=lambda machine_id: shutil.rmtree(place / "machines" / machine_id / "run"),
        lose_cgroup=partial(take_out_of_groups, node_id) if v1 else None,
        root_disk=root_disks(place),
        boot_s=4.0,
    )


firecracker_rig, cloud_hypervisor_rig = (partial(api_rig, name) for name in ("firecracker", "cloud-hypervisor"))

RIGS = [
    pytest.param(process_rig, id="process"),
    pytest.param(container_rig, id="container", marks=pytest.mark.root),
    pytest.param(crun_rig, id="container-by-crun", marks=pytest.mark.root),
    pytest.param(fake_rig, id="fake"),
    pytest.param(qemu_rig, id="qemu", marks=pytest.mark.root),
    *(
        pytest.param(rig, id=f"{name}-stand-in" if node.lack(name) else name, marks=pytest.mark.root)
        for rig, name in ((firecracker_rig, "firecracker"), (cloud_hypervisor_rig, "cloud-hypervisor"))
    ),
]
