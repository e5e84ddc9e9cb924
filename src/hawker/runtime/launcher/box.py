"""Turns a bundle's config.json into the launcher's plan. Pure but for the filter's compilation.

The box is the one that crun makes of the same bundle: the same mounts, flags, devices, masks, limits. Whatever the
bundle asks for and this cannot express raises `Inexpressible`, and crun launches that machine.
"""

import resource
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from hawker.host.cgroup import CgroupLayout, Hierarchies
from hawker.runtime.launcher.oci import OciConfig, OciDeviceRule, OciIdMap, OciMount, OciProcess, OciResources
from hawker.runtime.launcher.plan import PlanWriter, Record
from hawker.runtime.launcher.seccomp_program import seccomp_program
from hawker.value_object import ValueObject

_INSTRUCTION = struct.Struct("<BBhi")
_LOAD_WORD, _MOVE, _MOVE_NUMBER, _AND, _SHIFT_RIGHT = 0x61, 0xBF, 0xB7, 0x57, 0x77
_IF_NOT, _IF_NOT_EQUAL_REGISTERS, _EXIT = 0x55, 0x5D, 0x95
_RESULT, _CONTEXT, _KIND, _ACCESS, _MAJOR, _MINOR = range(6)
_KINDS = {"b": 1, "c": 2}
_ACCESSES = {"m": 1, "r": 2, "w": 4}
_ALL = 7


def _usual(major: int | None, minor: int | None, access: str = "rwm", kind: Literal["b", "c"] = "c") -> OciDeviceRule:
    return OciDeviceRule(allow=True, access=access, type=kind, major=major, minor=minor)


USUAL_DEVICES = (
    _usual(None, None, "m"),
    _usual(None, None, "m", "b"),
    *(_usual(1, minor) for minor in (3, 5, 7, 8, 9)),
    *(_usual(5, minor) for minor in (0, 1, 2)),
    _usual(136, None),
)
"""Nodes of any kind may be made; only the harmless ones can be used: null, zero, full, random, urandom, terminals."""


def device_lines(rules: Iterable[OciDeviceRule]) -> list[tuple[str, str]]:
    """Files of version 1's controller and what is written to each, in order."""
    return [("devices.allow" if rule.allow else "devices.deny", _line(rule)) for rule in rules]


def _line(rule: OciDeviceRule) -> str:
    if rule.type == "a":
        return "a"
    major, minor = ("*" if number is None else str(number) for number in (rule.major, rule.minor))
    return f"{rule.type} {major}:{minor} {rule.access}"


def device_program(rules: Sequence[OciDeviceRule]) -> bytes:
    """The program of version 2 (BPF_PROG_TYPE_CGROUP_DEVICE)."""
    program = [
        _instruction(_LOAD_WORD, _KIND, _CONTEXT),
        _instruction(_MOVE, _ACCESS, _KIND),
        _instruction(_AND, _KIND, number=0xFFFF),
        _instruction(_SHIFT_RIGHT, _ACCESS, number=16),
        _instruction(_LOAD_WORD, _MAJOR, _CONTEXT, offset=4),
        _instruction(_LOAD_WORD, _MINOR, _CONTEXT, offset=8),
    ]
    for rule in reversed(rules):
        program += _rule(rule)
    return b"".join([*program, *_verdict(allow=False)])


def _rule(rule: OciDeviceRule) -> list[bytes]:
    """Its conditions, each of which leaves for what comes after the verdict."""
    conditions: list[bytes] = []
    if rule.type != "a":
        conditions.append(_instruction(_IF_NOT, _KIND, number=_KINDS[rule.type]))
    access = sum(_ACCESSES[letter] for letter in set(rule.access))
    if access != _ALL:  # nothing may be asked for that the rule does not have
        conditions.append(_instruction(_MOVE, _CONTEXT, _ACCESS))
        conditions.append(_instruction(_AND, _CONTEXT, number=access))
        conditions.append(_instruction(_IF_NOT_EQUAL_REGISTERS, _CONTEXT, _ACCESS))
    for register, number in ((_MAJOR, rule.major), (_MINOR, rule.minor)):
        if number is not None:
            conditions.append(_instruction(_IF_NOT, register, number=number))
    verdict = _verdict(allow=rule.allow)
    last = len(conditions) + len(verdict) - 1
    return [_leaving(each, last - place) for place, each in enumerate(conditions)] + verdict


def _leaving(instruction: bytes, distance: int) -> bytes:
    code, registers, _, number = _INSTRUCTION.unpack(instruction)
    jumps = code in (_IF_NOT, _IF_NOT_EQUAL_REGISTERS)
    return _INSTRUCTION.pack(code, registers, distance, number) if jumps else instruction


def _verdict(*, allow: bool) -> list[bytes]:
    return [_instruction(_MOVE_NUMBER, _RESULT, number=int(allow)), _instruction(_EXIT)]


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, number: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, target | source << 4, offset, number)


_BY_TASKS, _BY_CLONE = 1, 2
_WEIGHT_MAX, _SHARES_MAX = 10_000, 262_144
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")

_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _NOATIME, _STRICTATIME = 0x1, 0x2, 0x4, 0x8, 0x10, 0x20
_ATTRIBUTES: Final[Mapping[str, int]] = {
    "ro": _READ_ONLY,
    "rw": 0,
    "nosuid": _NOSUID,
    "nodev": _NODEV,
    "noexec": _NOEXEC,
    "noatime": _NOATIME,
    "strictatime": _STRICTATIME,
    "relatime": 0,
    "private": 0,  # as every mount of a machine is
    "rprivate": 0,
}
_BIND_ATTRIBUTES = _READ_ONLY | _NOSUID | _NODEV | _NOEXEC
_NAMESPACES: Final[Mapping[str, int]] = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "pid": 0x20000000,
}
_NEW_NETWORK = 0x40000000
_ANYWHERE, _AT_THE_ROOT = 0, 1
_CHARACTER = 0o020000
_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("tty", 5, 0), ("random", 1, 8), ("urandom", 1, 9))
_LINKS = (
    ("fd", "/proc/self/fd", False),
    ("stdin", "/proc/self/fd/0", False),
    ("stdout", "/proc/self/fd/1", False),
    ("stderr", "/proc/self/fd/2", False),
    ("core", "/proc/kcore", False),
    ("ptmx", "pts/ptmx", True),
)
_SPEC_ALLOW = 4  # a filter does not slow the machine down by mitigations that the kernel has of its own
CAPABILITIES: Final = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE"
    " NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN"
    " SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE"
    " MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split()
"""In the order of their numbers."""


class Inexpressible(Exception):
    """The launcher cannot make this box."""


class GroupView(ValueObject, frozen=True):
    """What a machine sees of one hierarchy of version 1: the directory below /sys/fs/cgroup, and its mount's option."""

    directory: str
    """A name without slashes, `cpu,cpuacct` say."""
    option: str
    """What the hierarchy is mounted with, `cpu,cpuacct` or `name=systemd` say."""


class BoxSurroundings(ValueObject, frozen=True):
    """The host's side of a box. `views` are of version 1."""

    hierarchies: Hierarchies
    views: tuple[GroupView, ...]


def group_views(text: str, hierarchies: Hierarchies) -> tuple[GroupView, ...]:
    """From the text of /proc/self/cgroup, in its order: the hierarchies that are mounted."""
    options = [line.split(":", 2)[1] for line in text.splitlines()]
    mounted = [option for option in options if option and hierarchies.v1.keys() >= set(option.split(","))]
    return tuple(GroupView(option.removeprefix("name="), option) for option in mounted)


def box_plan(config: bytes, around: BoxSurroundings) -> bytes:
    """The plan for a bundle's config.json. Raises `Inexpressible`."""
    try:
        bundle = msgspec.json.decode(config, type=OciConfig)
        plan = PlanWriter()
        _add_groups(plan, bundle.linux.cgroups_path, bundle.linux.resources, around.hierarchies)
        _add_namespaces(plan, bundle)
        _add_view(plan, bundle, around)
        _add_process(plan, bundle.process)
        plan.add(Record.SECCOMP, _SPEC_ALLOW, seccomp_program(bytes(bundle.linux.seccomp)))
        return plan.finish()
    except (ValueError, KeyError, AttributeError, msgspec.MsgspecError) as error:
        raise Inexpressible(str(error)) from error


def host_plan(config: bytes, hierarchies: Hierarchies, argv: Iterable[str], path: str) -> bytes:
    """The plan for a program of the host, such as another runtime, that is to run in the control groups of a bundle,
    with its limits. `path` is its PATH. Raises `Inexpressible`."""
    plan = PlanWriter()
    try:
        linux = msgspec.json.decode(config, type=_Grouped).linux
        _add_groups(plan, linux.cgroups_path, linux.resources, hierarchies)
    except msgspec.MsgspecError as error:
        raise Inexpressible(str(error)) from error
    plan.add(Record.RUN_ON_HOST)
    for word in argv:
        plan.add(Record.ARG, word)
    plan.add(Record.ENV, f"PATH={path}")
    return plan.finish()


class _GroupedLinux(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cgroups_path: str
    resources: OciResources


class _Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a config.json that is about control groups."""

    linux: _GroupedLinux


# --- control groups


def _add_groups(plan: PlanWriter, path: str, resources: OciResources, hierarchies: Hierarchies) -> None:
    if hierarchies.layout is CgroupLayout.NONE:
        raise Inexpressible("no control groups are mounted")
    if hierarchies.layout is CgroupLayout.V2:
        _add_unified(plan, path, resources, hierarchies)
    else:
        _add_separate(plan, path, resources, hierarchies)


def _add_separate(plan: PlanWriter, path: str, resources: OciResources, hierarchies: Hierarchies) -> None:
    cpu, memory = resources.cpu, resources.memory
    files = {
        "cpu": [
            ("cpu.shares", str(cpu.shares), True),
            ("cpu.cfs_period_us", str(cpu.period), True),
            ("cpu.cfs_quota_us", str(cpu.quota), True),
        ],
        "memory": [
            ("memory.limit_in_bytes", str(memory.limit), True),
            ("memory.memsw.limit_in_bytes", str(memory.swap), False),  # not there where the kernel counts no swap
        ],
        "pids": [("pids.max", str(resources.pids.limit), True)],
        "devices": [
            (file, line, True) for rules in (resources.devices, USUAL_DEVICES) for file, line in device_lines(rules)
        ],
    }
    missing = files.keys() - hierarchies.v1.keys()
    if missing:
        raise Inexpressible(f"no control groups for {', '.join(sorted(missing))} on this host")
    for tree in hierarchies.trees():
        plan.add(Record.GROUP, f"{tree}{path}", _BY_TASKS)
        for controller, limits in files.items():
            if hierarchies.v1[controller] == tree:
                for file, value, needed in limits:
                    plan.add(Record.GROUP_SET, file, value, needed)


def _add_unified(plan: PlanWriter, path: str, resources: OciResources, hierarchies: Hierarchies) -> None:
    """Controllers are switched on from the root of the tree down to the group's parent."""
    cpu, memory = resources.cpu, resources.memory
    above = Path(f"{hierarchies.v2}{path}").parent
    for directory in (str(hierarchies.v2), str(above)):
        plan.add(Record.GROUP, directory, 0)
        for controller in _CONTROLLERS:
            plan.add(Record.GROUP_SET, "cgroup.subtree_control", f"+{controller}", False)
    plan.add(Record.GROUP, f"{hierarchies.v2}{path}", _BY_CLONE)
    quota = "max" if cpu.quota < 0 else str(cpu.quota)
    plan.add(Record.GROUP_SET, "cpu.max", f"{quota} {cpu.period}", True)
    plan.add(Record.GROUP_SET, "cpu.weight", str(1 + (cpu.shares - 2) * (_WEIGHT_MAX - 1) // (_SHARES_MAX - 2)), True)
    plan.add(Record.GROUP_SET, "memory.max", str(memory.limit), True)
    plan.add(Record.GROUP_SET, "memory.swap.max", str(memory.swap - memory.limit), False)
    plan.add(Record.GROUP_SET, "pids.max", str(resources.pids.limit), True)
    plan.add(Record.GROUP_FILTER, device_program((*resources.devices, *USUAL_DEVICES)))


# --- namespaces


def _add_namespaces(plan: PlanWriter, bundle: OciConfig) -> None:
    flags = 0
    has_users = False
    for namespace in bundle.linux.namespaces:
        if namespace.type == "network":
            flags |= 0 if namespace.path is not None else _NEW_NETWORK
            if namespace.path is not None:
                plan.add(Record.NETNS, namespace.path)
        elif namespace.path is not None:
            raise Inexpressible(f"the {namespace.type} namespace of another is to be entered")
        elif namespace.type == "user":
            has_users = True
        else:
            flags |= _NAMESPACES[namespace.type]
    if has_users:
        plan.add(Record.USERNS, _id_map(bundle.linux.uid_mappings), _id_map(bundle.linux.gid_mappings))
    elif bundle.linux.uid_mappings or bundle.linux.gid_mappings:
        raise Inexpressible("users are mapped without a namespace of theirs")
    plan.add(Record.NAMESPACES, flags)


def _id_map(ranges: tuple[OciIdMap, ...]) -> str:
    if not ranges:
        raise Inexpressible("a user namespace maps no ids")
    return "".join(f"{each.container_id} {each.host_id} {each.size}\n" for each in ranges)


# --- what is seen


def _add_view(plan: PlanWriter, bundle: OciConfig, around: BoxSurroundings) -> None:
    plan.add(Record.ROOT, bundle.root.path, bundle.root.readonly, 0)
    if bundle.hostname:
        plan.add(Record.HOSTNAME, bundle.hostname)
    for mount in bundle.mounts:
        if mount.type == "cgroup":
            _add_cgroup_view(plan, mount, around)
        elif mount.type == "bind" or not {"bind", "rbind"}.isdisjoint(mount.options):
            _add_bind(plan, mount, bundle)
        else:
            flags, options = _flags_and_options(mount)
            place = _AT_THE_ROOT if mount.type in ("proc", "sysfs") else _ANYWHERE
            plan.add(Record.FILESYSTEM, mount.destination, mount.type, mount.source, options, flags, place)
    for name, major, minor in _DEVICES:
        plan.add(Record.NODE, f"/dev/{name}", _CHARACTER | 0o666, major, minor)
    for name, target, forced in _LINKS:
        plan.add(Record.LINK, f"/dev/{name}", target, forced)
    for path in bundle.linux.masked_paths:
        plan.add(Record.MASK, path)
    for path in bundle.linux.readonly_paths:
        plan.add(Record.READ_ONLY, path)


def _flags_and_options(mount: OciMount) -> tuple[int, str]:
    flags = sum({_ATTRIBUTES[option] for option in mount.options if option in _ATTRIBUTES})
    return flags, ",".join(option for option in mount.options if option not in _ATTRIBUTES)


def _add_bind(plan: PlanWriter, mount: OciMount, bundle: OciConfig) -> None:
    """A source in the machine's own root is looked for there, when all before it is mounted."""
    root, maps = bundle.root.path, (bundle.linux.uid_mappings, bundle.linux.gid_mappings)
    flags, rest = _flags_and_options(mount)
    mapped = "idmap" in rest.split(",")
    if rest.removesuffix(",idmap") not in ("bind", "rbind") or flags & ~_BIND_ATTRIBUTES:
        raise Inexpressible(f"the bind mount at {mount.destination} has options that it cannot have here: {rest}")
    if (mapped or mount.uid_mappings) and (mount.uid_mappings, mount.gid_mappings) != maps:
        raise Inexpressible(f"the bind mount at {mount.destination} has users that are not the machine's")
    inside = mount.source.startswith(f"{root}/")
    source = mount.source[len(root) :] if inside else mount.source
    plan.add(Record.BIND, mount.destination, source, flags, rest.startswith("rbind"), inside, mapped)


def _add_cgroup_view(plan: PlanWriter, mount: OciMount, around: BoxSurroundings) -> None:
    """Of version 1: a directory for each hierarchy, on a file system of memory."""
    flags, rest = _flags_and_options(mount)
    if rest:
        raise Inexpressible(f"the control groups' mount has options that it cannot have here: {rest}")
    at = mount.destination
    if around.hierarchies.layout is CgroupLayout.V2:
        plan.add(Record.FILESYSTEM, at, "cgroup2", "cgroup2", "", flags, _ANYWHERE)
        return
    plan.add(Record.FILESYSTEM, at, "tmpfs", "cgroup", "size=1024k", flags & ~_READ_ONLY, _ANYWHERE)
    for view in around.views:
        plan.add(Record.FILESYSTEM, f"{at}/{view.directory}", "cgroup", "cgroup", view.option, flags, _ANYWHERE)
        names = view.directory.split(",")
        for name in names if len(names) > 1 else ():
            plan.add(Record.LINK, f"{at}/{name}", view.directory, 0)


# --- the process


def _add_process(plan: PlanWriter, process: OciProcess) -> None:
    granted = process.capabilities
    sets = (granted.bounding, granted.effective, granted.permitted, granted.inheritable, granted.ambient)
    plan.add(Record.CAPABILITIES, *map(_capability_bits, sets))
    for limit in process.rlimits:
        plan.add(Record.RLIMIT, int(getattr(resource, limit.type)), limit.soft, limit.hard)
    if process.oom_score_adj is not None:
        plan.add(Record.OOM_SCORE, str(process.oom_score_adj))
    if process.apparmor_profile:
        plan.add(Record.APPARMOR, process.apparmor_profile)
    if process.no_new_privileges:
        plan.add(Record.NO_NEW_PRIVILEGES)
    for word in process.args:
        plan.add(Record.ARG, word)
    for entry in process.env:
        plan.add(Record.ENV, entry)


def _capability_bits(names: tuple[str, ...]) -> int:
    return sum(1 << CAPABILITIES.index(name.removeprefix("CAP_")) for name in set(names))
