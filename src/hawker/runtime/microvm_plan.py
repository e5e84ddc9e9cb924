"""Plans one virtual machine by an instance's spec: drives, kernel command line, user, bounds. Pure.

`make_plan` decides; the plan is kept in the run directory, so that a machine goes on from its snapshot with exactly the
hardware it began with, whatever this version would give a new one.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from hawker.errors import BadRequest, NotServed
from hawker.host.cgroup_restore import Bounds
from hawker.runtime.oci_bundle import cgroup_bounds
from hawker.runtime.pilot.guest_spec import IMAGE, JOURNAL, LAYER
from hawker.runtime.spec import InstanceLimits, InstanceSpec
from hawker.runtime.vmm.contract import JailGrant, Vm, VmDrive, Vmm
from hawker.value_object import ValueObject

_QUIETLY = ("quiet", "panic=-1")
_OURS = re.compile(r"(hawker\.[^=]*|init|rdinit)(=|$)")
_PLAIN = re.compile(r"[!#-&(-~]+")  # printable, without blanks and quotes: one argument, and not two
_COMMAND_LINE_MAX = 2047  # bytes; x86's COMMAND_LINE_SIZE with its NUL
_THREADS = 128  # of a VMM, beside one for each cpu: its requests to disks are threads


class MicroVMFiles(ValueObject, frozen=True):
    """What of the host one machine is made of. `directory` is the VMM's own."""

    kernel: Path
    initramfs: Path
    ledger: Path
    directory: Path


class StoredGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A `JailGrant` that can be stored."""

    source: str
    target: str
    writable: bool


class MicroVMPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's hardware, and what of the host is behind it."""

    vm: Vm
    shown: tuple[StoredGrant, ...]

    def grants(self) -> tuple[JailGrant, ...]:
        return tuple(JailGrant(Path(each.source), each.target, each.writable) for each in self.shown)


def make_plan(
    spec: InstanceSpec, vmm: Vmm, inside: Callable[[Path, str], str], files: MicroVMFiles, fds: int
) -> MicroVMPlan:
    """`inside` is `Jail.inside`. Raises `BadRequest` and `NotServed` for what cannot be."""
    refuse(spec, vmm)
    assert spec.root_disk is not None, "refused above"
    sources = {
        "kernel": files.kernel,
        "initramfs": files.initramfs,
        "vmm": files.directory,
        JOURNAL: files.ledger,
        IMAGE: Path(spec.root_disk.image),
        LAYER: Path(spec.root_disk.layer),
        **{volume.name: Path(volume.file) for volume in spec.volumes},
    }
    read_only = {IMAGE, *(volume.name for volume in spec.volumes if volume.read_only)}
    shown_at = {name: inside(source, name) for name, source in sources.items()}
    disks = (JOURNAL, IMAGE, LAYER, *(volume.name for volume in spec.volumes))
    vm = Vm(
        machine_id=spec.machine_id,
        cpus=spec.limits.cpus,
        memory_mib=spec.limits.memory_mib,
        max_memory_mib=max_memory_mib(spec),
        kernel=shown_at["kernel"],
        initramfs=shown_at["initramfs"],
        command_line=command_line(spec, vmm, disks),
        drives=tuple(VmDrive(name, shown_at[name], name in read_only, spec.disk_limits) for name in disks),
        directory=shown_at["vmm"],
        link=spec.link,
        gpus=spec.gpus,
        fds=fds,
    )
    writable = {"vmm", *disks} - read_only
    shown = (
        StoredGrant(source=str(source), target=shown_at[name], writable=name in writable)
        for name, source in sources.items()
    )
    return MicroVMPlan(vm=vm, shown=tuple(shown))


def refuse(spec: InstanceSpec, vmm: Vmm) -> None:
    """Raises `BadRequest` for what no microVM can be, `NotServed` for what this VMM cannot do."""
    if spec.root_disk is None:
        raise BadRequest(f"a {vmm.name} machine needs a root disk")
    if spec.mounts:
        raise NotServed(f"the {vmm.name} driver shows no directory of the host to its machines: use volumes")
    if spec.gpus and not vmm.gpus:
        raise NotServed(f"the {vmm.name} driver cannot give devices of the host to its machines")
    if spec.limits.swap_mib:
        raise NotServed(f"the {vmm.name} driver gives no swap to its machines: their kernels have memory of their own")
    names = [JOURNAL, IMAGE, LAYER, "kernel", "initramfs", "vmm", *(volume.name for volume in spec.volumes)]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"two disks of machine {spec.machine_id} are called {name}")
    for argument in spec.kernel_args:
        _refuse_argument(argument)


def _refuse_argument(argument: str) -> None:
    if _OURS.match(argument):
        raise BadRequest(f"kernel_args: {argument.partition('=')[0]} is the platform's own: leave it out")
    if not _PLAIN.fullmatch(argument):
        raise BadRequest(f"kernel_args: {argument!r} is not one word: no blanks, quotes or control characters")


def max_memory_mib(spec: InstanceSpec) -> int:
    return max(spec.limits.memory_mib, spec.max_memory_mib or 0)


def command_line(spec: InstanceSpec, vmm: Vmm, disks: tuple[str, ...]) -> str:
    """The kernel's command line. It takes the last of two arguments that contradict each other: a user's come after
    ours. Raises `BadRequest` for one that is too long."""
    ours = (vmm.console(), *_QUIETLY, f"hawker.disks={','.join(disks)}", f"hawker.end={vmm.power_off}")
    line = " ".join((*ours, *spec.kernel_args))
    if len(line) > _COMMAND_LINE_MAX:
        raise BadRequest(f"kernel_args make a command line of {len(line)} bytes; a kernel takes {_COMMAND_LINE_MAX}")
    return line


def devices(spec: InstanceSpec, vmm: Vmm) -> tuple[str, ...]:
    """The devices of the host that the VMM opens itself."""
    return tuple(_devices(spec, vmm))


def _devices(spec: InstanceSpec, vmm: Vmm) -> Iterator[str]:
    if vmm.accelerates:
        yield "/dev/kvm"
    if spec.link is not None:
        yield "/dev/net/tun"


def bounds(limits: InstanceLimits, overhead_mib: int) -> Bounds:
    """The bounds of VMM and guest together: a guest's memory is its VMM's, and what the VMM needs comes on top."""
    with_vmm = msgspec.structs.replace(
        limits, memory_mib=limits.memory_mib + overhead_mib, swap_mib=0, pids=_THREADS + limits.cpus
    )
    return cgroup_bounds(with_vmm)
