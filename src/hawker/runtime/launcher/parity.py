"""Compares two boxes from outside, as the kernel describes them: whether our launcher makes the one that crun makes.

`observe` reads everything of a running process 1 that isolates it; `differences` says in sentences where two such
readings are not alike. Numbers that are new in every box, such as those of mounts and processes, are left out.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from hawker.host.cgroup import Hierarchies

Observation = Mapping[str, tuple[str, ...]]
"""Lines by what they are about."""

_STATUS = (
    "Umask Uid Gid Groups SigQ SigPnd ShdPnd SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp"
    " Seccomp_filters Speculation_Store_Bypass SpeculationIndirectBranch Threads THP_enabled Cpus_allowed_list"
    " Mems_allowed_list CoreDumping"
).split()
_VARIABLE = frozenset({"SigQ"})  # counts what waits for any process of the user
_LIMIT_FILES = (
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.weight",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.max",
    "memory.swap.max",
    "pids.max",
    "devices.list",
    "cpuset.cpus",
    "cpuset.mems",
    "freezer.state",
    "cgroup.type",
)
_TEXTS = "oom_score_adj uid_map gid_map setgroups loginuid personality timerslack_ns coredump_filter".split()
_ANONYMOUS = re.compile(r"^0:\d+$")


def observe(pid: int, hierarchies: Hierarchies, group: str) -> Observation:
    """What isolates a process; `group` is its control group in each tree. Raises `OSError` when it has ended."""
    process = Path(f"/proc/{pid}")
    found = {
        "status": tuple(_status((process / "status").read_text())),
        "mounts": tuple(sorted(_mounts((process / "mountinfo").read_text()))),
        "namespaces": tuple(_namespaces(process)),
        "limits": tuple((process / "limits").read_text().splitlines()),
        "environment": tuple((process / "environ").read_text().split("\0")),
        "descriptors": tuple(_descriptors(process)),
        "control groups": tuple(_lines(process / "cgroup")),
        "limits of the control groups": tuple(_limit_files(hierarchies, group)),
        "devices": tuple(_devices(process)),
    }
    return found | {name: tuple(_lines(process / name)) for name in _TEXTS if (process / name).exists()}


def differences(ours: Observation, theirs: Observation) -> list[str]:
    """None when they are alike."""
    found = []
    for about in sorted({*ours, *theirs}):
        mine, others = ours.get(about, ()), theirs.get(about, ())
        if mine != others:
            only = [f"only ours has {line!r}" for line in mine if line not in others]
            lacks = [f"ours lacks {line!r}" for line in others if line not in mine]
            found += [f"{about}: {each}" for each in (*only, *lacks)] or [f"{about}: another order or number"]
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]


def _status(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name = line.partition(":")[0]
        if name in _STATUS and name not in _VARIABLE:
            yield line
        elif name == "NSpid":
            yield f"{name}: {len(line.split()) - 1} numbers, the last {line.split()[-1]}"
        elif name == "NSsid":
            yield f"{name}: {line.split()[-1]}"


def _mounts(text: str) -> Iterator[str]:
    """By where it is and what it is mounted on. The source of a control group's mount is a name without effect."""
    fields = [line.split(" ") for line in text.splitlines()]
    places = {each[0]: each[4] for each in fields}
    for each in fields:
        dash = each.index("-")
        kind, source = each[dash + 1], each[dash + 2]
        device = "anonymous" if _ANONYMOUS.match(each[2]) else each[2]
        shown = "" if kind == "cgroup" else source
        yield " ".join(
            [each[4], "on", places.get(each[1], "nothing"), each[3], device, *each[5:dash], kind, shown, each[dash + 3]]
        )


def _namespaces(process: Path) -> Iterator[str]:
    """Which of them are this daemon's."""
    for name in sorted(os.listdir("/proc/self/ns")):
        same = os.readlink(process / "ns" / name) == os.readlink(f"/proc/self/ns/{name}")
        yield f"{name} {'shared with the host' if same else 'its own'}"


def _descriptors(process: Path) -> Iterator[str]:
    """Numbers, and what kind of file each is; of a device also where that is. Not the standard streams: crun's are an
    empty file, as it would give a device of the host to the machine, and ours are the machine's own /dev/null."""
    for number in sorted(set(os.listdir(process / "fd")) - {"0", "1", "2"}, key=int):
        target = os.readlink(process / "fd" / number)
        about = os.stat(process / "fd" / number)
        flags = (process / "fdinfo" / number).read_text().splitlines()[1]
        kind = target if target.startswith("/dev/") else target.partition(":")[0].rpartition("/")[0] and "file"
        yield f"{number} {kind} {about.st_mode:o} {about.st_rdev} {flags}"


def _devices(process: Path) -> Iterator[str]:
    """What is in its /dev, and who owns it."""
    root = process / "root/dev"
    for name in sorted(os.listdir(root)):
        about = (root / name).lstat()
        link = os.readlink(root / name) if (root / name).is_symlink() else ""
        yield f"{name} {about.st_mode:o} {about.st_uid}:{about.st_gid} {about.st_rdev} {link}"


def _limit_files(hierarchies: Hierarchies, group: str) -> Iterator[str]:
    for tree in hierarchies.trees():
        for name in _LIMIT_FILES:
            file = Path(f"{tree}{group}/{name}")
            if file.exists():
                yield f"{tree.name}/{name}: {' '.join(sorted(file.read_text().splitlines()))}"
