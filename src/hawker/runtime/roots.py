"""The root filesystems of a machine's containers, seen from the host before anything runs in them.

Here are made the places for what is mounted there, and links in a mount's path are followed as they are meant: the one
who mounts would follow them from the machine's root.
"""

import os
from pathlib import Path

import msgspec

from hawker.errors import BadRequest, WrongState
from hawker.ids import MachineId
from hawker.runtime.spec import ProcessSpec

_KERNELS_OWN = ("proc", "dev", "sys")
_LINKS_MAX = 40  # as the kernel has it


def lay_root(machine_id: MachineId, process: ProcessSpec) -> ProcessSpec:
    """Make the root ready for its mounts; the process with the true targets of these. Raises `WrongState` when the root
    is not mounted."""
    if process.root is None:
        return process
    root = Path(process.root)
    if not root.is_dir():
        raise WrongState(
            f"the root filesystem of container {process.name} of machine {machine_id} is not mounted: {root}"
        )
    for name in _KERNELS_OWN:
        if (root / name).is_symlink():
            (root / name).unlink()
        (root / name).mkdir(exist_ok=True)
    mounts = tuple(msgspec.structs.replace(each, target=_place(root, each.target)) for each in process.mounts)
    return msgspec.structs.replace(process, mounts=mounts)


def _place(root: Path, target: str) -> str:
    found = resolve(root, target)
    if found.split("/")[1] in ("", *_KERNELS_OWN):
        raise BadRequest(f"nothing can be mounted on {target}, which is {found} of the container")
    return found


def resolve(root: Path, path: str) -> str:
    """Where an absolute path leads for whoever has `root` as its root; what is not there is taken as it is named."""
    done: list[str] = []
    waiting = path.split("/")[::-1]
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            del done[-1:]
        if part in ("", ".", ".."):
            continue
        try:
            link = os.readlink(root.joinpath(*done, part))
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _LINKS_MAX:
            raise BadRequest(f"{path} leads round in a circle of links")
        if link.startswith("/"):
            done.clear()
        waiting += link.split("/")[::-1]
    return "/" + "/".join(done)
