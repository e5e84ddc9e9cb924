"""VMMs that do not come up, and guests that end in ways of their own: typed exits, and nothing left behind."""

import os
import signal
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hawker.errors import BadRequest, Unavailable, WrongState
from hawker.host.cgroup import find_hierarchies
from hawker.host.mount import mounts
from hawker.runtime.driver import Exit, Phase
from hawker.runtime.microvm_launch import (
    BROKEN,
    VmmEvidence,
    is_final,
    judge,
    last_words,
    plan_path,
    read_plan,
    starts_again,
)
from hawker.runtime.spec import GuestLink, RootDisk
from hawker.runtime.vmm.contract import VmmEnd
from hawker.runtime.vmm.keeper import read_record
from tests.runtime.guests import Guests, guests

pytestmark = [pytest.mark.anyio, pytest.mark.root]


def left(there: Guests) -> list[Path]:
    """Groups of other tests come and go meanwhile: only the node's own are looked at."""
    trees = find_hierarchies(mounts()).trees()
    return [path for tree in trees for path in tree.glob(f"hawker-{there.node_id[:4]}/*") if path.is_dir()]


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


async def test_a_missing_file_is_said_before_anything_is_launched(tmp_path: Path) -> None:
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


KILLED = Exit(exit_code=137, signal=9, exited_at=50.0)
PANIC = b"[    1.5] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0\r\n[    1.6] Rebooting\r\n"


def ended(status: int, console: bytes = b"", oom_kills: int = 0) -> VmmEvidence:
    return VmmEvidence(end=VmmEnd(status=status, at=40.0, console=console), oom_kills=oom_kills)


def test_an_end_the_pilot_recorded_is_the_end() -> None:
    recorded = Exit(exit_code=3, exited_at=30.0)
    assert judge(ended(-11, PANIC, oom_kills=1), recorded, KILLED) == recorded


@pytest.mark.parametrize(
    ("evidence", "code", "fault"),
    [
        (ended(0, PANIC), BROKEN, "kernel panic: Attempted to kill init! exitcode=0x0"),
        (
            ended(0, b"all is well\n"),
            BROKEN,
            "the guest turned itself off without a word; its kernel's last words: all",
        ),
        (ended(0), BROKEN, "its kernel's last words: (none)"),
        (ended(1, b"qemu: -m: no\n"), BROKEN, "the VMM ended with status 1: qemu: -m: no"),
        (ended(-11), 139, "the VMM was ended by SIGSEGV"),
        (ended(-64), 192, "the VMM was ended by"),
        (VmmEvidence(end=None, oom_kills=0), 137, "the VMM and its keeper were ended from outside"),
        (ended(-9, oom_kills=2), 137, "raise vmm_overhead_mib"),
    ],
)
def test_silence_has_a_fault(evidence: VmmEvidence, code: int, fault: str) -> None:
    exit = judge(evidence, None, KILLED)
    assert exit.exit_code == code and fault in exit.fault and not exit.reason
    assert exit.exited_at == (40.0 if evidence.end else 50.0)
    assert exit.oom_killed == (evidence.oom_kills > 0)


def test_an_error_that_would_come_again_is_final() -> None:
    assert is_final(ended(0)) and is_final(ended(-9, oom_kills=1))
    assert not is_final(ended(1)) and not is_final(ended(-9)) and not is_final(VmmEvidence(end=None, oom_kills=0))


def test_a_guest_that_is_to_be_started_again_has_no_final_end() -> None:
    asks = b"[    0.3] odd\r\nhawker: start again: no right timer: later\r\n"
    assert starts_again(ended(0, asks)) and not is_final(ended(0, asks))
    for end in (ended(1, asks), ended(0, PANIC), ended(0, b"said hawker: start again: x\n"), ended(-9)):
        assert not starts_again(end)
    assert not starts_again(VmmEvidence(end=None, oom_kills=0))


def test_last_words_are_few_and_harmless() -> None:
    console = b"[    0.1] one\r\n\r\n[    0.2] two\n\x1b[2Jthree\xff\n" + b"four\n"
    assert last_words(console) == "two / [2Jthree\ufffd / four"
    assert len(last_words(b"x" * 10_000)) == 400
    assert last_words(b"\n \n") == "(none)"
