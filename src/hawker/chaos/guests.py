"""What is different at a node whose machines have kernels of their own: where its kernel comes from, and what of its
machines is on the host, found in files alone.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from hawker.errors import CannotStart
from hawker.ids import InstanceId, MachineId, VolumeId
from hawker.place import Place, default_data_dir
from hawker.runtime.pilot.rundir import RunDir

GUEST_DRIVERS = frozenset({"qemu", "firecracker", "cloud-hypervisor"})
CONTAINED = frozenset({"container", *GUEST_DRIVERS})
"""Drivers whose machines have networks, root filesystems, limits and volumes, so that they can be suspended, too."""


def bring_kernels(place: Place, source: Path | None = None) -> None:
    """Give a new node what was imported for another one, by default for the one of this host's usual data directory.
    Raises `CannotStart` when there is none."""
    kernels = source or Place(default_data_dir()).kernels
    if not kernels.is_dir() or not any(kernels.iterdir()):
        raise CannotStart(f"there is no guest kernel in {kernels}: hawker kernel import, or name another directory")
    if not place.kernels.exists():
        place.kernels.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(kernels, place.kernels, copy_function=_link)


def _link(source: str, target: str) -> str:
    """Nothing of a kernel is ever written to."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def root_disks(machines: Path) -> Mapping[MachineId, InstanceId]:
    """Whose writable layer each machine has."""
    links = [link for link in machines.glob("*/rootdisk") if link.exists()]
    return {MachineId(link.parent.name): InstanceId(link.readlink().parent.name) for link in links}


def memories(machines: Path) -> frozenset[MachineId]:
    """Machines with a snapshot that they are to go on with."""
    return frozenset(MachineId(run.parent.name) for run in machines.glob("*/run") if RunDir(run).saved())


def volumes_in_use(machines: Path, running: Mapping[MachineId, InstanceId]) -> Mapping[MachineId, VolumeId]:
    """By what the instances of these machines were given."""
    specs = {each: RunDir(machines / each / "run").spec() for each in running}
    return {
        each: VolumeId(Path(volume.file).parent.name)
        for each, spec in specs.items()
        if spec is not None
        for volume in spec.volumes
    }
