"""Trials with programs that play a VMM; KVM itself is tried where it answers, whatever it answers."""

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.runtime.kernel import kvm_trial
from hawker.runtime.kernel.guest_kernel import BootFiles
from hawker.runtime.kernel.kvm_trial import CONTENDERS, KVM, Contender, KvmTrial, KvmTrials, lack_of_kvm, watched
from tests.kernel import boot_files, emulation

pytestmark = pytest.mark.anyio

BOOT = BootFiles(kernel=Path("/kernel+1"), initramfs=Path("/1.cpio"), release="6.1.0")
USER_SPACE = "[    1.0] Run /init as init process"
LONG_S = 60.0
"""Time enough for any program to begin and end, also on a busy host."""


def shell(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]


async def test_a_kernel_that_comes_up_is_seen_at_once_and_ended() -> None:
    trial = await watched(shell(f"echo boot; echo '{USER_SPACE}'; exec sleep 600"), SystemClock(), LONG_S)
    assert trial.boots and trial.reason.startswith("boots a kernel with KVM in ")


async def cut_short(line: str, least_s: float) -> tuple[KvmTrial, float]:
    """The trial of what says something at once, and does not end then, with its limit: on a busy host even that is
    silent for a while."""
    for limit_s in (least_s, 10 * least_s, LONG_S):
        trial = await watched(shell(line), SystemClock(), limit_s)
        if not trial.reason.endswith("it said nothing"):
            break
    return trial, limit_s


async def test_a_kernel_that_does_not_come_up_in_time() -> None:
    trial, limit_s = await cut_short("echo 'Booting the kernel.'; exec sleep 600", 0.5)
    assert not trial.boots
    assert trial.reason == f"KVM answers, but no kernel came up within {limit_s:g} s: Booting the kernel."


async def test_a_vmm_that_refuses_is_quoted_on_one_line() -> None:
    trial = await watched(shell("echo first; printf 'no \\033[31mluck\\n\\n' >&2; exit 1"), SystemClock(), LONG_S)
    assert trial.reason == "KVM answers, but no kernel came up before its end: no [31mluck"
    assert (await watched(["/bin/true"], SystemClock(), LONG_S)).reason.endswith("it said nothing")


async def test_a_console_that_floods_costs_no_memory_and_no_time() -> None:
    trial, _ = await cut_short("yes flood | head -c 200000000", 1.0)
    assert not trial.boots and ": fl" in trial.reason and len(trial.reason) < 250


@pytest.fixture
def kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device that answers, and a directory for the results. Each trial has time."""
    monkeypatch.setattr("fcntl.ioctl", lambda fd, request: 12)
    monkeypatch.setattr(kvm_trial, "watched", partial(watched, limit_s=LONG_S))
    (tmp_path / "kvm").write_bytes(b"")
    return tmp_path / "kvm"


def contender(tmp_path: Path, says: str, version: int = 1) -> Contender:
    """Leaves a line in a file each time it is tried."""
    program = tmp_path / "vmm"
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'VMM {version}' && exit\necho >>{tmp_path}/tried\necho '{says}'\n"
    )
    program.chmod(0o755)
    return Contender("vmm", str(program), "bzImage", lambda found, boot, work: [found, str(boot.kernel)])


def tries(tmp_path: Path) -> int:
    file = tmp_path / "tried"
    return len(file.read_text().splitlines()) if file.exists() else 0


async def test_a_result_is_kept_for_one_boot_of_the_host(tmp_path: Path, kvm: Path) -> None:
    vmm, results = contender(tmp_path, USER_SPACE), tmp_path / "trials.json"
    for _ in range(2):
        assert (await KvmTrials(results, "boot-1", SystemClock(), kvm).run(vmm, lambda form: BOOT)).boots
    assert tries(tmp_path) == 1
    assert (await KvmTrials(results, "boot-2", SystemClock(), kvm).run(vmm, lambda form: BOOT)).boots
    assert tries(tmp_path) == 2 and b"boot-1" not in results.read_bytes()


async def test_another_kernel_or_version_is_tried_anew(tmp_path: Path, kvm: Path) -> None:
    vmm, trials = contender(tmp_path, "no luck"), KvmTrials(tmp_path / "trials.json", "boot", SystemClock(), kvm)
    other = BootFiles(kernel=Path("/kernel+2"), initramfs=Path("/1.cpio"), release="6.1.0")
    for boot in (BOOT, other, BOOT, other):
        assert not (await trials.run(vmm, partial(lambda boot, form: boot, boot))).boots
    assert tries(tmp_path) == 2
    contender(tmp_path, "no luck", version=2)
    await trials.run(vmm, lambda form: BOOT)
    assert tries(tmp_path) == 3


async def test_results_that_cannot_be_read_cost_another_trial(tmp_path: Path, kvm: Path) -> None:
    (tmp_path / "trials.json").write_text("[{")
    vmm = contender(tmp_path, USER_SPACE)
    assert (await KvmTrials(tmp_path / "trials.json", "boot", SystemClock(), kvm).run(vmm, lambda form: BOOT)).boots


async def test_without_kvm_or_program_nothing_is_tried(tmp_path: Path, kvm: Path) -> None:
    vmm = contender(tmp_path, USER_SPACE)
    none = await KvmTrials(tmp_path / "t", "boot", SystemClock(), tmp_path / "none").run(vmm, lambda form: BOOT)
    assert (none.boots, none.reason) == (False, lack_of_kvm(tmp_path / "none")) and tries(tmp_path) == 0
    missing = Contender("vmm", "no-such-vmm", "bzImage", vmm.command)
    found = await KvmTrials(tmp_path / "t", "boot", SystemClock(), kvm).run(missing, lambda form: BOOT)
    assert found.reason == "no-such-vmm is not installed"


def test_a_device_that_is_no_kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert "is no KVM" in lack_of_kvm(tmp_path / "file")
    assert "does not open" in lack_of_kvm(tmp_path)
    assert f"no {tmp_path}/none" in lack_of_kvm(tmp_path / "none")
    monkeypatch.setattr("fcntl.ioctl", lambda fd, request: 11)
    assert "speaks version 11, not 12" in lack_of_kvm(tmp_path / "file")


@pytest.mark.parametrize("name", CONTENDERS)
def test_each_vmm_is_given_kernel_initramfs_and_a_console(name: str, tmp_path: Path) -> None:
    """Of Firecracker and Cloud Hypervisor no binary was there to try."""
    words = CONTENDERS[name].command("/usr/bin/vmm", BOOT, tmp_path)
    told = " ".join(words) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert words[0] == "/usr/bin/vmm" and "/kernel+1" in told and "/1.cpio" in told and "console=ttyS0" in told


async def test_a_real_kernel_is_seen_to_come_up(tmp_path: Path) -> None:
    """Emulated, with the very command of the trial: what is seen is the same."""
    qemu = shutil.which(CONTENDERS["qemu"].program)
    if qemu is None:
        pytest.skip("qemu is not installed")
    words = CONTENDERS["qemu"].command(qemu, boot_files("bzImage"), tmp_path)
    swapped = {"kvm": "tcg", "host": "max"}
    emulated = [f"{word} {emulation()}" if "console=" in word else swapped.get(word, word) for word in words]
    trial = await watched(emulated, SystemClock(), 4 * LONG_S)
    assert trial.boots, trial.reason


async def test_kvm_itself_is_told_apart_from_what_only_opens(tmp_path: Path) -> None:
    qemu = CONTENDERS["qemu"]
    if lack_of_kvm() or shutil.which(qemu.program) is None:
        pytest.skip(lack_of_kvm() or f"{qemu.program} is not installed")
    trial = await KvmTrials(tmp_path / "trials.json", "boot", SystemClock(), KVM).run(qemu, boot_files)
    print(trial.reason, file=sys.stderr)
    assert trial.boots == trial.reason.startswith("boots a kernel with KVM in ")
