"""A host with the driver of an API-driven VMM: the real one where it is installed and KVM works, else its stand-in."""

import functools
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import structs

from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.guest import pilot_path
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from hawker.runtime.crun import Crun
from hawker.runtime.kernel.guest_kernel import BootFiles, GuestKernel
from hawker.runtime.kernel.kernel_store import Kernel
from hawker.runtime.kernel.kvm_trial import CONTENDERS, KvmTrials, lack_of_kvm
from hawker.runtime.microvm import MicroVMDriver, MicroVMTechnology, microvm_driver
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import RootDisk
from hawker.runtime.vmm.cloud_hypervisor import CLOUD_HYPERVISOR, CloudHypervisor
from hawker.runtime.vmm.contract import Vmm
from hawker.runtime.vmm.firecracker import FIRECRACKER, Firecracker
from hawker.runtime.vmm.keeper import read_record
from tests import microvm
from tests.kernel import KERNELS, boot_files, lack_of_kernel
from tests.rootfs import host_programs
from tests.vmm.open_jail import OpenJail
from tests.vmm.pilot_guest import TREE
from tests.vmm.stand_in import wrapper

CLOCK = SystemClock()
KVM = Path("/dev/kvm")
_PROGRAMS = {"firecracker": FIRECRACKER, "cloud-hypervisor": CLOUD_HYPERVISOR}
_STAND_IN_MIB = 192  # it is an interpreter


@functools.cache
def lack(name: str) -> str:
    """Why the real one cannot boot anything here; "" when it does. Where it is installed, it is tried."""
    try:
        anyio.run(_PROGRAMS[name].check, lambda: lack_of_kvm(KVM))
    except CannotStart as error:
        return str(error)
    if reason := lack_of_kernel():
        return reason
    with tempfile.TemporaryDirectory() as place:
        trial = anyio.run(KvmTrials(Path(place) / "trials", "tests", CLOCK).run, CONTENDERS[name], boot_files)
    return "" if trial.boots else trial.reason


class NoKernel(GuestKernel):
    """Files that are not a kernel: a stand-in's guest needs none."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, None, pilot_path(), CLOCK)
        self._place = place

    def kernel(self) -> Kernel:
        raise CannotStart("there is no kernel")

    def files(self, form: str) -> BootFiles:
        self._place.mkdir(exist_ok=True)
        made = [self._place / name for name in (form, "boot")]
        for path in made:
            path.touch()
        return BootFiles(kernel=made[0], initramfs=made[1], release="stand-in")


def stand_in(name: str, place: Path) -> Vmm:
    program = structs.replace(_PROGRAMS[name], command=str(wrapper(name, place / "bin")))
    if name == "firecracker":
        return Firecracker(CLOCK, lambda: "", program)
    return CloudHypervisor(CLOCK, lambda: "", program)


def driver(name: str, node_id: NodeId, place: Path) -> MicroVMDriver:
    """As a new daemon would make it."""
    if not lack(name):
        return microvm_driver(
            name,
            node_id,
            machines=place / "machines",
            crun_state=place / "crun",
            kernels=KERNELS,
            clock=CLOCK,
            accelerates=True,
        )
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    jail = OpenJail(Crun(place / "crun", cgroups), cgroups)
    vms = MicroVMTechnology(stand_in(name, place), jail, NoKernel(place / "kernel"), cgroups, CLOCK, _STAND_IN_MIB)
    return MicroVMDriver(vms, place / "machines", CLOCK)


def root_disks(name: str, place: Path) -> Callable[[MachineId], RootDisk]:
    """Of a stand-in's guest: a directory of the host's programs, in the place of its image and its layer."""
    if not lack(name):
        return microvm.root_disks(place)

    def made(machine_id: MachineId) -> RootDisk:
        image = place / "roots" / machine_id
        host_programs(image.with_name(image.name + TREE))
        layer = image.with_name(image.name + ".layer")
        image.touch()
        layer.touch()
        return RootDisk(image=str(image), layer=str(layer))

    return made


def kill_vmm(place: Path, machine_id: MachineId) -> None:
    """As if somebody had: its keeper writes that down."""
    pid = read_record(RunDir(place / "machines" / machine_id / "run")).vmm
    assert pid is not None, "a machine that runs has a VMM"
    os.kill(pid, signal.SIGKILL)
