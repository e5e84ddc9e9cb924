"""Files of a spec that do not go with it: each is sent as a copy (guest/PROTOCOL.md) from a file of the host, before
the first process that may read it begins.

A copy is repeated as often as one likes: a file has its name when it is complete.
"""

import os
import posixpath
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import anyio
import msgspec

from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.runtime.driver import CopyDirection, ExecSession, ExecSpec
from hawker.runtime.spec import FileSpec, InstanceSpec

STALLED_S = 60.0  # without a byte that was taken
_MAGIC = b"HKCP\x01\x00"
_ENTRY, _DATA, _DONE, _CLOSE = b"\x01", b"\x02", b"\x03", b"\x05"
_FILE, _DIRECTORY = 1, 2
_HEAD = struct.Struct("<BIIIqQ")  # kind, mode, uid, gid, time of change in ns, size
_STRETCH = struct.Struct("<QI")  # where, how many bytes
_PART = 64 * 1024
_BATCH = 1 << 20
_WORDS = 2000  # bytes of a complaint

OpenCopy = Callable[[ExecSpec], Awaitable[ExecSession]]


class FileNotCopied(Exception):
    """The machine says why."""


def sources_of(files: tuple[FileSpec, ...]) -> tuple[FileSpec, ...]:
    return tuple(file for file in files if file.source is not None)


def waiting_for_files(spec: InstanceSpec) -> tuple[int, ...]:
    """The processes that would begin with the machine, and wait for files that do not go with its spec."""
    of_all = bool(sources_of(spec.files))
    begun = (index for index, process in enumerate(spec.processes) if not process.held)
    return tuple(index for index in begun if of_all or sources_of(spec.processes[index].files))


def held_for_files(spec: InstanceSpec) -> InstanceSpec:
    """The same with those processes held."""
    waiting = waiting_for_files(spec)
    processes = tuple(
        msgspec.structs.replace(process, held=True) if index in waiting else process
        for index, process in enumerate(spec.processes)
    )
    return msgspec.structs.replace(spec, processes=processes) if waiting else spec


async def copy_files(files: tuple[FileSpec, ...], process: int, begin: OpenCopy) -> None:
    """Those with a source, into the root filesystem of that process. Raises `FileNotCopied` when the machine has no
    room, say; `Unavailable` when contact is lost, or nothing is taken for a minute; `OSError` for a source."""
    for file in sources_of(files):
        for parent in _parents(file.path):
            await _copy(parent, process, _directory(), begin)
        await _copy(file.path, process, _content(file), begin)


def _parents(path: str) -> list[str]:
    """From below the root on."""
    parts = posixpath.dirname(path).split("/")[1:]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts)) if parts[count]]


async def _copy(path: str, process: int, stream: Iterator[bytes], begin: OpenCopy) -> None:
    spec = ExecSpec(argv=(path, "", ""), user="0", cwd="/", process=process, copy=CopyDirection.IN)
    session = await begin(spec)
    try:
        await _send(session, stream)
        with anyio.fail_after(STALLED_S):
            complaint = b"".join([data async for _, data in session.output()])[:_WORDS]
            exit = await session.wait()
    except TimeoutError as error:
        raise Unavailable(f"the machine does not take {path}") from error
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()
    if exit.exit_code:
        raise FileNotCopied(complaint.decode(errors="replace").strip() or f"{path}: exit code {exit.exit_code}")


async def _send(session: ExecSession, stream: Iterator[bytes]) -> None:
    while batch := await in_thread(Pool.HOST, _batch, stream):
        with anyio.fail_after(STALLED_S):
            await session.send(batch)
    with suppress(Unavailable):
        await session.send_eof()


def _batch(stream: Iterator[bytes]) -> bytes:
    found = bytearray()
    for piece in stream:
        found += piece
        if len(found) >= _BATCH:
            break
    return bytes(found)


def _directory() -> Iterator[bytes]:
    """As it is, where it is there."""
    yield _MAGIC + _entry(_DIRECTORY, 0o755, 0, 0) + _CLOSE


def _content(file: FileSpec) -> Iterator[bytes]:
    assert file.source is not None
    with open(file.source, "rb", buffering=0) as source:
        about = os.fstat(source.fileno())
        yield _MAGIC + _entry(_FILE, file.mode, about.st_mtime_ns, about.st_size)
        at = 0
        while data := source.read(_PART):
            yield _DATA + _STRETCH.pack(at, len(data)) + data
            at += len(data)
    yield _DONE + _CLOSE


def _entry(kind: int, mode: int, changed_ns: int, size: int) -> bytes:
    return _ENTRY + _HEAD.pack(kind, mode, 0, 0, changed_ns, size) + 2 * (struct.pack("<I", 0) + b"\0")
