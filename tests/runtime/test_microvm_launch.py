"""VMMs that do not come up, and guests that end in ways of their own: typed exits, and nothing left behind."""

import os
import signal
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hawker.errors import BadRequest, Unavailable, WrongState
from hawker.runtime.driver import Phase
from hawker.runtime.microvm_exit import BROKEN
from hawker.runtime.microvm_launch import plan_path, read_plan
from hawker.runtime.spec import GuestLink, RootDisk
from hawker.runtime.vmm.keeper import read_record
from tests.runtime.guests import Guests, guests

pytestmark = [pytest.mark.anyio, pytest.mark.root]


def left(there: Guests) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").rglob(f"hawker-{there.node_id[:4]}/*") if path.is_dir()]


async def test_a_vmm_that_refuses_says_so_in_its_own_words_and_leaves_nothing(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec("exit 0", memory_mib=1 << 30)
        with pytest.raises(Unavailable, match=r"cannot be run: .*[Mm]emory"):
            await there.driver.start(spec)
        assert (await there.driver.inspect(spec.machine_id)).phase is Phase.PREPARED
        assert not there.run(spec).alive() and left(there) == []


async def test_a_panic_is_an_exit_with_the_kernel_s_words(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 1000")
        await there.driver.start(spec)
        exit = await there.driver.wait(spec.machine_id)
        assert (exit.exit_code, exit.signal) == (BROKEN, 0)
        assert exit.fault == "kernel panic: sysrq triggered crash"
        assert await there.renew().wait(spec.machine_id) == exit


async def test_a_vmm_that_is_killed_is_a_fault_with_its_signal(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        spec = there.spec("sleep 1000")
        await there.driver.start(spec)
        vmm = read_record(there.run(spec)).vmm
        assert vmm is not None
        os.kill(vmm, signal.SIGKILL)
        exit = await there.driver.wait(spec.machine_id)
        assert (exit.exit_code, exit.signal, exit.fault) == (137, 9, "the VMM was ended by SIGKILL")


async def test_what_is_missing_is_said_before_anything_is_launched(tmp_path: Path) -> None:
    async with guests(tmp_path) as there:
        good = there.spec("exit 0")
        change = partial(msgspec.structs.replace, good)
        link = GuestLink(mac="02:00:00:00:00:01", addresses=(), gateways=())
        for spec, error, text in (
            (change(root_disk=RootDisk(image="/nope", layer="/nope")), WrongState, "not there: /nope"),
            (change(link=link), BadRequest, "no network to be in"),
            (change(netns="/nope"), WrongState, "not there: /nope"),
        ):
            with pytest.raises(error, match=text):
                await there.driver.prepare(spec)
        assert not there.run(good).spec()
        plan_path(there.run(good)).parent.mkdir(parents=True, exist_ok=True)
        plan_path(there.run(good)).write_text("{")
        with pytest.raises(WrongState, match="restart it"):
            read_plan(there.run(good))
