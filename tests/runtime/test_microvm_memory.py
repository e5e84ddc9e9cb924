"""The memory of a guest, with a guest that says what a test wants it to say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable, WrongState
from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.runtime.microvm_launch import MicroVMPlan, write_plan
from hawker.runtime.microvm_memory import MicroVMMemory
from hawker.runtime.pilot.requests import GuestMemory
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec
from hawker.runtime.vmm.contract import Vm
from hawker.runtime.vmm.qemu import Qemu

pytestmark = pytest.mark.anyio
MIB = 1 << 20
NODE, MACHINE = NodeId("0123abcd"), MachineId("m")
LIMITS = InstanceLimits(cpus=1, cpu_weight=100, memory_mib=256, pids=10)
OVERHEAD = 100


class Balloon(Qemu):
    """Follows at once, down to `least`."""

    def __init__(self, least: int) -> None:
        super().__init__(SystemClock(), accelerates=True)
        self.least = least
        self.sizes: list[int] = []

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        self.sizes.append(guest_mib)
        if guest_mib < self.least:
            raise Unavailable("the guest has not gone there")


class Told(MicroVMMemory):
    said = GuestMemory(total=240 * MIB, available=156 * MIB, free=40 * MIB, swap_total=0, swap_free=0)

    async def ask(self, run: RunDir) -> GuestMemory:
        return self.said


@dataclass
class Scene:
    run: RunDir
    group: Path
    balloon: Balloon
    memory: Told

    def bound(self) -> int:
        return int((self.group / "memory.max").read_text()) // MIB


@asynccontextmanager
async def scene(place: Path, *, least: int = 0) -> AsyncIterator[Scene]:
    """With a control group of the second kind that is made of plain files."""
    group = place / "cgroup" / "hawker-0123" / MACHINE
    group.mkdir(parents=True)
    files = {
        "memory.max": (256 + OVERHEAD) * MIB,
        "memory.current": 150 * MIB,
        "memory.swap.max": 0,
        "memory.reclaim": 0,
    }
    for name, value in files.items():
        (group / name).write_text(str(value))
    (group / "memory.stat").write_text(f"inactive_file {20 * MIB}\nactive_file 0\n")
    run = RunDir(place / MACHINE / "run")
    run.path.mkdir(parents=True)
    run.write_spec(
        InstanceSpec(machine_id=MACHINE, instance_id=InstanceId("I"), hostname="h", processes=(), limits=LIMITS)
    )
    write_plan(run, MicroVMPlan(vm=Vm(MACHINE, 1, 256, 512, "/k", "/i", "", (), "/vmm"), shown=()))
    balloon = Balloon(least)
    cgroups = Cgroups(NODE, Hierarchies({}, place / "cgroup"))
    yield Scene(run, group, balloon, Told(balloon, balloon.channel(), cgroups, OVERHEAD))


def limits(mib: int) -> InstanceLimits:
    return msgspec.structs.replace(LIMITS, memory_mib=mib)


async def test_a_machine_s_memory_is_the_limit_and_its_own_words(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        found = await it.memory.read(it.run)
        assert (found.limit_mib, found.available_mib) == (256, 156)


async def test_more_than_it_was_started_for_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        with pytest.raises(WrongState, match="at most 512 MB"):
            await it.memory.limit(it.run, limits(513))
        assert it.balloon.sizes == [] and it.bound() == 356


async def test_more_is_bound_and_then_given(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.memory.limit(it.run, limits(512))
        assert it.balloon.sizes == [512] and it.bound() == 512 + OVERHEAD


async def test_less_is_taken_and_then_bound(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.memory.limit(it.run, limits(128))
        assert it.balloon.sizes == [128] and it.bound() == 128 + OVERHEAD


async def test_less_than_is_used_is_refused_with_the_least(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        with pytest.raises(WrongState, match="the limit must be at least 116 MB"):
            await it.memory.limit(it.run, limits(115))
        assert it.balloon.sizes == [] and it.bound() == 356


async def test_a_guest_that_does_not_follow_keeps_what_it_had(tmp_path: Path) -> None:
    async with scene(tmp_path, least=200) as it:
        with pytest.raises(Unavailable):
            await it.memory.limit(it.run, limits(128))
        assert it.balloon.sizes == [128, 256] and it.bound() == 356


async def test_memory_squeezed_out_may_be_taken_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.memory.reclaim(it.run, 24) == 0, "nothing of this group changes"
        assert it.balloon.sizes == [256 - 40 - 24, 256]


async def test_nobody_is_squeezed_for_nothing_or_to_the_last(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        assert await it.memory.reclaim(it.run, 0) == 0 and it.balloon.sizes == []
        await it.memory.reclaim(it.run, 1000)
        assert it.balloon.sizes[0] == 256 - (156 - 16)
