"""Who holds a file system that is mounted here no more, or not only here: processes with a mount namespace of their own
that was copied while it was mounted. Until they end or let go of it, the kernel keeps the file system as it was.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from hawker.value_object import ValueObject

_PROC = Path("/proc")
_MACHINES = "/hawker-"  # in the control group of every machine's process, of whatever node


class MountHolder(ValueObject, frozen=True):
    """One process of a namespace; `namespace` is the kernel's number of it."""

    pid: int
    name: str
    namespace: int

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}) in mount namespace {self.namespace}"


def mount_holders(devices: Collection[Path]) -> dict[Path, tuple[MountHolder, ...]]:
    """For each device that is held, a process of each foreign namespace that holds it; machines' own do not count."""
    numbers = {number: device for device in devices if (number := _number_of(device)) is not None}
    found: dict[Path, list[MountHolder]] = {}
    if numbers:
        for holder, folder in _first_of_each_namespace():
            for device in {numbers[number] for number in _mounted_in(folder) if number in numbers}:
                found.setdefault(device, []).append(holder)
    return {device: tuple(holders) for device, holders in found.items()}


def _first_of_each_namespace() -> Iterator[tuple[MountHolder, Path]]:
    """Beside our own. A process that ends meanwhile is left out."""
    seen = {_namespace_of(_PROC / "self")}
    for folder in sorted((each for each in _PROC.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)):
        with suppress(OSError, ValueError):
            namespace = _namespace_of(folder)
            if namespace in seen or _MACHINES in (folder / "cgroup").read_text():
                continue
            seen.add(namespace)
            name = (folder / "comm").read_text(errors="replace").strip()
            yield MountHolder(int(folder.name), name, namespace), folder


def _namespace_of(folder: Path) -> int:
    return int(os.readlink(folder / "ns/mnt").partition("[")[2].rstrip("]"))


def _mounted_in(folder: Path) -> Iterator[str]:
    """The devices, as `major:minor`."""
    with suppress(OSError):
        for line in (folder / "mountinfo").read_text(errors="replace").splitlines():
            yield line.split()[2]


def _number_of(device: Path) -> str | None:
    with suppress(OSError):
        number = device.stat().st_rdev
        return f"{os.major(number)}:{os.minor(number)}"
    return None
