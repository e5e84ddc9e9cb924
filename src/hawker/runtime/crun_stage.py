"""Where crun finds what it mounts for a machine with ids of its own: there it is nobody of this host and passes none of
our directories.

All is bound below `STAGE`, in crun's own mount namespace, so nothing of it is seen outside or stays. There too is a
view of the kernel that only root may mount: a user namespace gets one of a network namespace only if it owns that.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hawker.host import netns
from hawker.host.mount import BIND, NODEV, NOEXEC, NOSUID, mount
from hawker.runtime.oci_bundle import ContainerPlacement, oci_config
from hawker.runtime.spec import InstanceSpec, MountSpec, ProcessSpec
from hawker.value_object import ValueObject

STAGE = Path("/run/hawker/stage")
"""An empty directory of the host that everybody may pass."""

SYS = STAGE / "sys"
_OPEN = "mode=711,size=64k"


def make_stage(stage: Path = STAGE) -> None:
    """Everybody may pass it and its parent, whatever the daemon's umask. Raises `OSError`."""
    for directory in (stage.parent, stage):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)


class CrunStage(ValueObject, frozen=True):
    """What is bound for one launch: each source with its place."""

    binds: tuple[tuple[Path, Path], ...]
    network: Path | None

    def prepare(self) -> None:
        """In a mount namespace of the caller's own. Descriptors first: the stage may hide a source."""
        opened = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source, _ in self.binds]
        try:
            mount("tmpfs", STAGE, "tmpfs", NOSUID | NODEV, _OPEN)
            for fd, (source, place) in zip(opened, self.binds, strict=True):
                place.mkdir() if source.is_dir() else place.touch()
                mount(f"/proc/self/fd/{fd}", place, "", BIND)
        finally:
            for fd in opened:
                os.close(fd)
        SYS.mkdir()
        self._mount_sys()

    def _mount_sys(self) -> None:
        def view() -> None:
            mount("sysfs", SYS, "sysfs", NOSUID | NODEV | NOEXEC)

        if self.network is None:
            view()
        else:
            netns.visit(self.network, view)


def staged(spec: InstanceSpec, pilot: Path) -> tuple[InstanceSpec, Path, CrunStage]:
    """The spec and the pilot's file by their places on the stage."""
    binds: dict[Path, Path] = {}

    def place(source: str | Path) -> str:
        return str(binds.setdefault(Path(source), STAGE / f"{len(binds)}"))

    def mounts(of: tuple[MountSpec, ...]) -> tuple[MountSpec, ...]:
        return tuple(msgspec.structs.replace(each, source=place(each.source)) for each in of)

    def process(of: ProcessSpec) -> ProcessSpec:
        root = None if of.root is None else place(of.root)
        return msgspec.structs.replace(of, root=root, mounts=mounts(of.mounts))

    assert spec.rootfs is not None, "a container has a root filesystem"
    on_stage = msgspec.structs.replace(
        spec,
        rootfs=place(spec.rootfs),
        processes=tuple(map(process, spec.processes)),
        mounts=mounts(spec.mounts),
    )
    program = Path(place(pilot))
    return on_stage, program, CrunStage(tuple(binds.items()), None if spec.netns is None else Path(spec.netns))


def staged_config(spec: InstanceSpec, placement: ContainerPlacement) -> tuple[bytes, Callable[[], None] | None]:
    """The config.json of an instance as crun can carry it out, and what mounts the stage where it needs one."""
    if spec.first_id is None:
        return oci_config(spec, placement), None
    on_stage, pilot, stage = staged(spec, placement.pilot)
    return oci_config(on_stage, replace(placement, pilot=pilot, sys=SYS)), stage.prepare
