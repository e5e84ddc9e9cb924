"""Whether KVM can really boot our kernel here: it is tried, once per boot of the host, kernel and version of the VMM.

That /dev/kvm opens says little: inside some virtual machines it does, and no ordinary kernel ever comes up.
"""

import fcntl
import os
import platform
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
import msgspec
from anyio.abc import Process

from hawker.clock import Clock
from hawker.fair.threads import Pool, in_thread
from hawker.runtime.kernel.guest_kernel import BootFiles
from hawker.runtime.kernel.kernel_store import draft, put_file
from hawker.value_object import ValueObject

KVM = Path("/dev/kvm")

_LIMIT_S = 5.0
_GRACE_S = 5  # after the limit it is killed, also when nobody is left to do it
_ENDS_WITHIN_S = 2.0
_VERSION_S = 10.0
_USER_SPACE = b"Run /init as init process"
_KEPT = 16 << 10  # of the console
_LONGEST_LINE = 160
_MOST_RESULTS = 64
_KVM_GET_API_VERSION, _KVM_API_VERSION = 0xAE00, 12
_CONSOLE = "console=ttyS0 loglevel=7 panic=-1"


class KvmTrial(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is for people: what was seen."""

    boots: bool
    """A kernel came up with KVM and said so on its console."""
    reason: str


class Contender(ValueObject, frozen=True):
    """A VMM to try: its program, and the command that boots a kernel with KVM and says on stdout what its console does.
    The command may leave files in the directory that it is given."""

    name: str
    """That of the driver it is for."""
    program: str
    """Its name on the PATH."""
    form: str  # of the kernel: "bzImage" or "vmlinux"
    command: Callable[[str, BootFiles, Path], list[str]]


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    about: str  # all that the answer depends on
    trial: KvmTrial


class KvmTrials:
    """`results` is the file that keeps them; `boot_id` tells one boot of the host from another."""

    def __init__(self, results: Path, boot_id: str, clock: Clock, kvm: Path = KVM) -> None:
        self._results = results
        self._clock = clock
        self._boot_id = boot_id
        self._kvm = kvm

    async def run(self, contender: Contender, files: Callable[[str], BootFiles]) -> KvmTrial:
        """Takes up to 5 s when it is not known yet. `files` gives the kernel in a form. Raises `OSError`, and what
        `files` raises."""
        lack = lack_of_kvm(self._kvm)
        if lack:
            return KvmTrial(boots=False, reason=lack)
        program = shutil.which(contender.program)
        if program is None:
            return KvmTrial(boots=False, reason=f"{contender.program} is not installed")
        boot = await in_thread(Pool.HOST, files, contender.form)
        about = f"{self._boot_id} {contender.name} {await _version(program)} {boot.kernel} {boot.initramfs.name}"
        known = self._known()
        if about not in known:
            known[about] = await self._try(contender, program, boot)
            await in_thread(Pool.HOST, self._remember, known)
        return known[about]

    async def _try(self, contender: Contender, program: str, boot: BootFiles) -> KvmTrial:
        with draft(self._results.parent) as work:
            return await watched(contender.command(program, boot, work), self._clock)

    def _known(self) -> dict[str, KvmTrial]:
        """A file that cannot be read costs another trial."""
        try:
            results = msgspec.json.decode(self._results.read_bytes(), type=tuple[_Result, ...])
        except (OSError, msgspec.DecodeError):
            return {}
        return {result.about: result.trial for result in results}

    def _remember(self, known: Mapping[str, KvmTrial]) -> None:
        results = [_Result(about=about, trial=trial) for about, trial in known.items() if self._boot_id in about]
        with draft(self._results.parent) as work:
            made = work / self._results.name
            made.write_bytes(msgspec.json.encode(results[-_MOST_RESULTS:]))
            put_file(made, self._results)


def lack_of_kvm(device: Path = KVM) -> str:
    """Why KVM cannot be used, as far as its device tells; "" when it answers."""
    try:
        fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return f"no {device}: KVM is not there, or in a virtual machine not allowed to nest"
    except OSError as error:
        return f"{device} does not open: {error.strerror}"
    try:
        version = fcntl.ioctl(fd, _KVM_GET_API_VERSION)
        return "" if version == _KVM_API_VERSION else f"{device} speaks version {version}, not {_KVM_API_VERSION}"
    except OSError as error:
        return f"{device} is no KVM: {error.strerror}"
    finally:
        os.close(fd)


async def watched(command: list[str], clock: Clock, limit_s: float = _LIMIT_S) -> KvmTrial:
    """Run it until its console says that user space begins, it ends, or the time is up. It never outlives its limit."""
    guarded = ["timeout", "--signal=KILL", str(limit_s + _GRACE_S), *command]
    began, console = clock.monotonic(), bytearray()
    async with await anyio.open_process(guarded, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True) as vmm:
        with anyio.move_on_after(limit_s) as limit:
            await _read(vmm, console)
        await _end(vmm)
    if _USER_SPACE in console:
        return KvmTrial(boots=True, reason=f"boots a kernel with KVM in {clock.monotonic() - began:.1f} s")
    ended = f"within {limit_s:g} s" if limit.cancelled_caught else "before its end"
    return KvmTrial(boots=False, reason=f"KVM answers, but no kernel came up {ended}: {_last_line(console)}")


async def _end(vmm: Process) -> None:
    """`timeout` hands the signal on and waits for its child; then nothing of both is left for others to reap."""
    with suppress(ProcessLookupError), anyio.CancelScope(shield=True):
        vmm.terminate()
        with anyio.move_on_after(_ENDS_WITHIN_S):
            await vmm.wait()
        os.killpg(vmm.pid, signal.SIGKILL)


async def _read(vmm: Process, console: bytearray) -> None:
    """Keeps the end of it."""
    assert vmm.stdout is not None, "it was asked for"
    async for piece in vmm.stdout:
        console += piece
        if _USER_SPACE in console:
            return
        del console[:-_KEPT]


def _last_line(console: bytearray) -> str:
    lines = console.decode("utf-8", "replace").split("\n")
    printable = ("".join(filter(str.isprintable, line)).strip() for line in reversed(lines))
    return next((line for line in printable if line), "it said nothing")[:_LONGEST_LINE]


async def _version(program: str) -> str:
    """Its first line; one that says nothing has none."""
    with anyio.move_on_after(_VERSION_S):
        done = await anyio.run_process([program, "--version"], check=False, stderr=STDOUT, stdin=DEVNULL)
        return done.stdout.decode("utf-8", "replace").split("\n")[0].strip()
    return ""


def _qemu(program: str, boot: BootFiles, work: Path) -> list[str]:
    machine = "microvm,acpi=on,rtc=on,isa-serial=on,pic=off" if platform.machine() == "x86_64" else "virt"
    basic = ["-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio", "-m", "256"]
    files = ["-kernel", str(boot.kernel), "-initrd", str(boot.initramfs), "-append", _CONSOLE]
    return [program, "-M", machine, "-accel", "kvm", "-cpu", "host", *basic, *files]


def _cloud_hypervisor(program: str, boot: BootFiles, work: Path) -> list[str]:
    files = ["--kernel", str(boot.kernel), "--initramfs", str(boot.initramfs), "--cmdline", _CONSOLE]
    return [program, "--cpus", "boot=1", "--memory", "size=256M", "--serial", "tty", "--console", "off", *files]


def _firecracker(program: str, boot: BootFiles, work: Path) -> list[str]:
    source = {
        "kernel_image_path": str(boot.kernel),
        "initrd_path": str(boot.initramfs),
        "boot_args": f"{_CONSOLE} reboot=k pci=off",
    }
    whole = {"boot-source": source, "drives": [], "machine-config": {"vcpu_count": 1, "mem_size_mib": 256}}
    (work / "vm.json").write_bytes(msgspec.json.encode(whole))
    return [program, "--no-api", "--config-file", str(work / "vm.json")]


CONTENDERS: Mapping[str, Contender] = {
    each.name: each
    for each in (
        Contender("cloud-hypervisor", "cloud-hypervisor", "vmlinux", _cloud_hypervisor),
        Contender("firecracker", "firecracker", "vmlinux", _firecracker),
        Contender("qemu", f"qemu-system-{platform.machine()}", "bzImage", _qemu),
    )
}
"""By the names of their drivers."""
