"""What the technology of microVMs says of itself."""

from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.guest import pilot_path
from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.ids import MachineId, NodeId
from hawker.runtime.crun import Crun
from hawker.runtime.driver import Exit, Suspension
from hawker.runtime.kernel.guest_kernel import GuestKernel
from hawker.runtime.microvm import MicroVMTechnology
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.crun_jail import CrunJail
from hawker.runtime.vmm.qemu import Qemu

CLOCK = SystemClock()
NOBODY = MachineId("00000000000bad")


def microvms(place: Path) -> MicroVMTechnology:
    cgroups = Cgroups(NodeId("0123abcd"), Hierarchies({}, place / "cgroup"))
    kernel = GuestKernel(place / "kernels", None, pilot_path(), CLOCK)
    jail = CrunJail(Crun(place / "crun", cgroups), cgroups)
    return MicroVMTechnology(Qemu(CLOCK, accelerates=True), jail, kernel, cgroups, CLOCK, None)


def test_a_microvm_has_kernels_disks_and_snapshots(tmp_path: Path) -> None:
    features = microvms(tmp_path).features
    assert features.kernel and features.disks and features.limits and features.network
    assert features.suspend is Suspension.SNAPSHOT and not features.gpus and not features.containers
    assert (features.driver, microvms(tmp_path).name) == ("qemu", "qemu")


@pytest.mark.anyio
@pytest.mark.root
async def test_without_a_kernel_it_cannot_start_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"hawker kernel import|is missing: apt-get install|no cgroups"):
        await microvms(tmp_path).check()


def test_nobody_s_machine_is_neither_suspended_nor_at_its_end(tmp_path: Path) -> None:
    run, made = RunDir(tmp_path / NOBODY / "run"), microvms(tmp_path)
    assert not made.is_suspended(run) and not made.failed_to_boot(run) and made.remnants() == []
    lost = Exit(exit_code=137, signal=9, exited_at=1.0)
    assert made.complete(run, None, lost).fault == "the VMM and its keeper were ended from outside"
