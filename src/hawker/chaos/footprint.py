"""What a node has on its host, found without its daemon and without its records: what is mounted, which pilots live,
and which of the traces on the host belong to nothing that runs or is recorded.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hawker.chaos.traces import Trace
from hawker.host.address import bridge_prefix, interface_prefix, spare_veth_name, veth_name
from hawker.host.mount import mounts
from hawker.ids import InstanceId, MachineId, NodeId, SnapshotId, VolumeId, is_snapshot_id

_LAYER = re.compile(r"(?:^|,)upperdir=[^,]*/layers/([^/,]+)/(?:roots/[^/,]+/)?upper")
_PROC = Path("/proc")
_SYS_NET = Path("/sys/class/net")


def mounted(machines: Path) -> Mapping[MachineId, InstanceId]:
    """Whose writable layer is at each machine's root, or at those of its containers."""
    found = {}
    for mount in mounts(machines):
        layer = _LAYER.search(mount.options)
        if mount.target.name == "rootfs" and layer:
            found[MachineId(mount.target.parent.name)] = InstanceId(layer[1])
        elif mount.target.parent.name == "containers" and layer:
            found[MachineId(mount.target.parent.parent.name)] = InstanceId(layer[1])
    return found


def networks(directory: Path) -> frozenset[MachineId]:
    """Machines that have a network namespace, whole or half removed."""
    return frozenset(MachineId(name) for name in os.listdir(directory)) if directory.is_dir() else frozenset()


def volumes(directory: Path) -> Mapping[VolumeId, int]:
    """The volumes that have a file, and how many bytes."""
    files = directory.glob("vol_*/disk") if directory.is_dir() else ()
    return {VolumeId(file.parent.name): file.stat().st_size for file in files}


def volumes_mounted(directory: Path) -> frozenset[VolumeId]:
    targets = [mount.target for mount in mounts(directory)]
    return frozenset(VolumeId(target.parent.name) for target in targets if target.name == "mounted")


def snapshots(directory: Path) -> frozenset[SnapshotId]:
    """Those that are whole; drafts count for nothing."""
    names = [file.name for file in directory.iterdir()] if directory.is_dir() else []
    return frozenset(SnapshotId(name) for name in names if is_snapshot_id(name))


def pilots(machines: Path) -> Counter[MachineId]:
    """How many pilots live of each machine, or keepers of those whose pilots are inside a VMM. Both hold the journal
    open, even one that was removed."""
    found: Counter[MachineId] = Counter()
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and _name_of(folder) in ("pilot", "keeper"):
            held = {path.relative_to(machines).parts[0] for path in _open_files(folder) if _is_below(path, machines)}
            found.update(MachineId(name) for name in held)
    return found


def _is_below(path: Path, directory: Path) -> bool:
    return path != directory and path.is_relative_to(directory)


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""


def _open_files(process: Path) -> Iterator[Path]:
    try:
        for fd in (process / "fd").iterdir():
            yield Path(os.readlink(fd))
    except OSError:
        return  # it has ended, or it is another user's


@dataclass(frozen=True, slots=True)
class Claims:
    """What may be on the host while nothing is under way: of which node and directory, which machines are recorded,
    and of which processes run. Of `guests` nothing is mounted."""

    node_id: NodeId
    data_dir: Path
    recorded: Collection[MachineId]
    running: Collection[MachineId]
    guests: bool = False


def unclaimed(traces: Iterable[Trace], claims: Claims) -> list[str]:
    """Of a node's traces, those that nothing accounts for."""
    traces = list(traces)
    loops = {trace for trace in traces if trace.kind == "loop" and not _is_mounted(trace, traces)}
    return sorted(str(trace) for trace in traces if trace in loops or not _is_claimed(trace, claims))


def _is_mounted(loop: Trace, traces: Iterable[Trace]) -> bool:
    device = f" /dev/{loop.name.split()[0]} "
    return any(trace.kind == "mount" and device in trace.bears for trace in traces)


def _is_claimed(trace: Trace, claims: Claims) -> bool:
    match trace.kind:
        case "process":
            return any(machine_id in trace.bears for machine_id in claims.running)
        case "mount":
            return _is_claimed_mount(Path(trace.name), claims)
        case "interface":
            return _is_claimed_interface(trace.name, claims)
        case "cgroup":
            _, _, below = trace.name.partition(f"hawker-{claims.node_id}/")
            return not below or below.split("/")[0] in claims.running
        case "staged tree":
            return False
        case _:  # the node's own loop devices and packet table
            return True


def _is_claimed_mount(target: Path, claims: Claims) -> bool:
    """Images stay mounted while the node has machines; the directories of a machine bear its id. Whether a volume may
    be mounted is asked elsewhere."""
    if not target.is_relative_to(claims.data_dir):
        return True
    first, *rest = target.relative_to(claims.data_dir).parts or ("",)
    if claims.guests and first in ("machines", "mounts", "volumes"):
        return False
    if first == "volumes":
        return target.name == "mounted"
    return first in ("", "mounts") or not rest or rest[0] in claims.recorded


def _is_claimed_interface(name: str, claims: Claims) -> bool:
    node_id = claims.node_id
    if name.startswith(bridge_prefix(node_id)):
        return any((_SYS_NET / name / "brif").iterdir()) if (_SYS_NET / name / "brif").is_dir() else True
    if name.startswith(spare_veth_name(node_id).removesuffix("%d")) or not name.startswith(interface_prefix(node_id)):
        return True
    return name in {veth_name(node_id, machine_id) for machine_id in claims.recorded}
