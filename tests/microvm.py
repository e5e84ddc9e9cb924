"""QEMU on this host, for tests: whether it can be had, and disks with a few of the host's programs, made once a
session."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from hawker.clock import SystemClock
from hawker.ids import MachineId, NodeId
from hawker.runtime.microvm import MicroVMDriver, microvm_driver
from hawker.runtime.spec import RootDisk
from hawker.runtime.vmm.qemu import Qemu
from tests.kernel import KERNELS, lack_of_kernel
from tests.rootfs import host_programs

CLOCK = SystemClock()
_LAYER_BYTES = 64 << 20


@functools.cache
def lack_of_qemu() -> str:
    """Why no machine can be booted here; "" when one can."""
    if os.geteuid() != 0:
        return "microVMs need root"
    for program in (Qemu.program, "crun", "mkfs.erofs", "mkfs.ext4"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    return lack_of_kernel()


def qemu_driver(node_id: NodeId, place: Path) -> MicroVMDriver:
    """As a new daemon would make it. Emulated: it is what runs everywhere."""
    return microvm_driver(
        "qemu", node_id, machines=place / "machines", crun_state=place / "crun", kernels=KERNELS, clock=CLOCK
    )


def root_disks(place: Path) -> Callable[[MachineId], RootDisk]:
    """The image that all share, and for each machine a layer of its own, which stays its own."""

    def made(machine_id: MachineId) -> RootDisk:
        layer = place / "layers" / machine_id
        if not layer.exists():
            layer.parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "--sparse=always", _disks() / "layer", layer], check=True)
        return RootDisk(image=str(_disks() / "image"), layer=str(layer))

    return made


@functools.cache
def _session() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hawker-disks-")


@functools.cache
def _disks() -> Path:
    place = Path(_session().name)
    host_programs(place / "root")
    subprocess.run(["mkfs.erofs", "--quiet", place / "image", place / "root"], check=True, stdout=subprocess.DEVNULL)
    with (place / "layer").open("wb") as file:
        file.truncate(_LAYER_BYTES)
    subprocess.run(["mkfs.ext4", "-q", place / "layer"], check=True)
    return place
