"""A device that a program makes, where the kernel has no WireGuard: what it is told at its socket, which process it is,
and room for packets that arrive while it has no processor.

wireguard-go of 2023 and later takes that room itself. An older one, as Debian 12 has it, keeps what the kernel gives
every socket, some ninety packets: on a busy host it loses every seventh, and TCP sends these again.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from hawker.host.mesh.wireguard import (
    MeshChange,
    MeshKey,
    MeshPeer,
    MeshState,
    read_uapi,
    uapi_change,
    uapi_identity,
)
from hawker.value_object import ValueObject

ROOM_BYTES = 7 << 20
"""Of each socket at which other hosts' packets arrive; as much as wireguard-go itself takes."""
_SOCKETS = Path("/var/run/wireguard")
_ANSWERS_WITHIN_S = 5.0
_CHUNK = 1 << 16
_PROC = Path("/proc")
_SO_RCVBUFFORCE = 33
_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


class ProgramDevice:
    """A program's device, by the socket that it listens at."""

    def __init__(self, name: str, sockets: Path = _SOCKETS) -> None:
        self._name = name
        self._socket = sockets / f"{name}.sock"

    def read(self) -> MeshState:
        return read_uapi(self._said("get=1\n\n"))

    def identify(self, key: MeshKey, port: int) -> None:
        self._said(uapi_identity(key.private, port))
        give_room(self._name)

    def change(self, change: MeshChange, after: Mapping[str, MeshPeer]) -> None:
        self._said(uapi_change(change, after))

    def _said(self, question: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_ANSWERS_WITHIN_S)
            line.connect(str(self._socket))
            line.sendall(question.encode())
            said = bytearray()
            while not said.endswith(b"\n\n"):
                more = line.recv(_CHUNK)
                if not more:
                    break
                said += more
        body, _, status = said.decode().rstrip("\n").rpartition("errno=")
        if status != "0":
            code = abs(int(status)) if status.lstrip("-").isdigit() else errno.EIO
            raise OSError(code, f"the mesh refuses this: {status or 'no answer'}")
        return body


class TunnelProgram(ValueObject, frozen=True):
    pid: int
    """The number of its process."""
    file: str
    """Its path; ` (deleted)` follows where another file took its place since."""


def program_of(device: str) -> TunnelProgram | None:
    """That carries the packets of this device of the calling thread's network namespace. None where none is found."""
    here = _namespace(_PROC / "thread-self")
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:] == [device.encode(), b""] and _namespace(folder) == here:
                return TunnelProgram(int(folder.name), str((folder / "exe").readlink()))
    return None


def give_room(device: str) -> None:
    """To the sockets that the device's program has now. A kernel before 5.6, or one that does not let us at another
    process's sockets, leaves them as they are."""
    program = program_of(device)
    if program is None:
        return
    with suppress(OSError):
        for each in _sockets(program.pid):
            if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_DGRAM:
                each.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM_BYTES)


def _namespace(process: Path) -> tuple[int, int]:
    found = (process / "ns/net").stat()
    return found.st_dev, found.st_ino


def _sockets(pid: int) -> Iterator[socket.socket]:
    """Of another process, each until the next one is asked for. Raises `OSError`."""
    process = os.pidfd_open(pid)
    try:
        for number in os.listdir(_PROC / str(pid) / "fd"):
            if str((_PROC / str(pid) / "fd" / number).readlink()).startswith("socket:"):
                with closing(socket.socket(fileno=_taken(process, int(number)))) as found:
                    yield found
    finally:
        os.close(process)


def _taken(process: int, number: int) -> int:
    """What another process has as `number`, as a file descriptor of ours."""
    taken: int = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    if taken < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return taken
