"""A tap: the network interface at whose other end a virtual machine monitor is, with the frames of its guest."""

import errno
import fcntl
import os
import struct
from pathlib import Path

from hawker.errors import CannotStart
from hawker.host.links import index_of

_DEVICE = Path("/dev/net/tun")
_TUNSETIFF, _TUNSETPERSIST, _TUNSETOWNER = 0x400454CA, 0x400454CB, 0x400454CC
_TAP, _NO_PACKET_INFO, _VIRTIO_HEADER = 0x0002, 0x1000, 0x4000


def ensure_tap(name: str, owner: int) -> int:
    """The index of a tap in the calling thread's namespace that stays when nobody has it open. User `owner` may attach
    to it without any privilege. One that is there already, and maybe attached to, is left as it is."""
    if index_of(name) is None:
        tap = attach(name)
        try:
            fcntl.ioctl(tap, _TUNSETOWNER, owner)
            fcntl.ioctl(tap, _TUNSETPERSIST, 1)
        finally:
            os.close(tap)
    index = index_of(name)
    assert index is not None, "the tap was just made"
    return index


def attach(name: str) -> int:
    """A file descriptor that carries the tap's frames, each behind a virtio header; makes a tap that is not there.
    Raises `CannotStart` when the host has no taps, and as `join`."""
    tap = open_taps()
    try:
        join(tap, name)
    except OSError:
        os.close(tap)
        raise
    return tap


def open_taps(device: Path = _DEVICE) -> int:
    """What becomes a tap by `join`. Raises `CannotStart` when the host has none."""
    try:
        return os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        raise CannotStart(f"this host's kernel has no taps ({device}): modprobe tun") from error


def join(tap: int, name: str, *, header: bool = True) -> None:
    """Raises `OSError`: EBUSY when somebody is attached to that tap already, EPERM when it is another user's."""
    flags = _TAP | _NO_PACKET_INFO | (_VIRTIO_HEADER if header else 0)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
