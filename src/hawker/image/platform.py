"""Which image of an index runs on this host. Pure but for `host_platform`."""

import os

from hawker.image.failure import BadImage
from hawker.image.manifest import Descriptor, Index, Platform

_MACHINES = {
    "x86_64": Platform(os="linux", architecture="amd64"),
    "aarch64": Platform(os="linux", architecture="arm64", variant="v8"),
    "armv7l": Platform(os="linux", architecture="arm", variant="v7"),
    "riscv64": Platform(os="linux", architecture="riscv64"),
    "ppc64le": Platform(os="linux", architecture="ppc64le"),
    "s390x": Platform(os="linux", architecture="s390x"),
}
_ATTESTATION = "vnd.docker.reference.type"  # an annotation of entries that are about an image, not one


def host_platform() -> Platform:
    machine = os.uname().machine
    return _MACHINES.get(machine, Platform(os="linux", architecture=machine))


def choose(index: Index, wanted: Platform) -> Descriptor:
    """The entry for `wanted`: of its own variant, or one that says no variant, before other variants. An entry that
    says no platform is taken when it is the only one. Raises `BadImage` listing what there is."""
    entries = [entry for entry in index.manifests if _ATTESTATION not in (entry.annotations or {})]
    fitting = [entry for entry in entries if entry.platform and fits(entry.platform, wanted)]
    if fitting:
        return min(fitting, key=lambda entry: _distance(entry.platform, wanted))
    if len(entries) == 1 and not (entries[0].platform and entries[0].platform.architecture):
        return entries[0]
    offered = ", ".join(sorted({str(entry.platform or "unknown") for entry in entries})[:12]) or "none"
    raise BadImage(f"no image for platform {wanted}; there is: {offered}")


def fits(offered: Platform, wanted: Platform) -> bool:
    return (offered.os, offered.architecture) == (wanted.os, wanted.architecture)


def _distance(offered: Platform | None, wanted: Platform) -> int:
    variant = offered.variant if offered else ""
    if variant == wanted.variant:
        return 0
    return 1 if not variant else 2


def check_platform(os: str, architecture: str, wanted: Platform) -> None:
    """For an image that is alone in its manifest: its config says what it is for, or nothing. Raises `BadImage`
    for another platform."""
    offered = Platform(os=os, architecture=architecture)
    if architecture and not fits(offered, wanted):
        raise BadImage(f"no image for platform {wanted}; there is: {offered}")
