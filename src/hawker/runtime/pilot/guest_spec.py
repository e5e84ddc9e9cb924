"""The third part of a run spec: what a machine with a kernel of its own is given (guest/PROTOCOL.md). Pure."""

from hawker.errors import BadRequest
from hawker.runtime.pilot import frames
from hawker.runtime.spec import GuestLink, InstanceSpec, VolumeDisk

JOURNAL, IMAGE, LAYER = "ledger", "image", "layer"
"""What its first disks are called inside; then come its volumes, by their own names."""

VOLUMES_MAX = 32
_KERNEL_SETTINGS = ("net.ipv4.ip_unprivileged_port_start=0", "net.ipv4.ping_group_range=0 2147483647")
"""As containers have them: see `host.forwarding`."""


def encode_guest_spec(spec: InstanceSpec, now: float) -> bytes:
    """`now` is Unix seconds, what the guest's clock is set to. Empty for a machine with the host's kernel. Raises
    `BadRequest`."""
    if spec.root_disk is None:
        return b""
    if len(spec.volumes) > VOLUMES_MAX:
        raise BadRequest(f"a machine can have {VOLUMES_MAX} volumes, not {len(spec.volumes)}")
    return b"".join(
        (
            frames.nanoseconds(now),
            frames.string(IMAGE),
            frames.string(LAYER),
            frames.number(len(spec.volumes), 4),
            *(_volume(volume) for volume in spec.volumes),
            frames.string(""),  # no swap: the host cannot see how much of it a guest uses
            frames.strings(_KERNEL_SETTINGS),
            frames.number(0 if spec.link is None else 1, 1),
            b"" if spec.link is None else _link(spec.link),
        )
    )


def _volume(volume: VolumeDisk) -> bytes:
    return b"".join(
        (
            frames.string(volume.name),
            frames.string(volume.fstype),
            frames.string(volume.target),
            frames.number(1 if volume.read_only else 0, 1),
        )
    )


def _link(link: GuestLink) -> bytes:
    return b"".join(
        (
            frames.string(link.name),
            _hardware_address(link.mac),
            frames.number(link.mtu, 2),
            frames.strings(link.addresses),
            frames.strings(link.gateways),
        )
    )


def _hardware_address(text: str) -> bytes:
    try:
        address = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        address = b""
    if len(address) != 6:
        raise BadRequest(f"no hardware address: {text!r}")
    return address
