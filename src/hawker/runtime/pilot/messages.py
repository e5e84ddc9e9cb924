"""What the pilot's frames carry, as values: the run spec, with what a machine with a kernel of its own is given, and
exec requests out; hello, endings and processes in (guest/PROTOCOL.md).
"""

import signal
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain

from hawker.errors import BadRequest
from hawker.runtime.driver import (
    CopyDirection,
    ExecSpec,
    Exit,
    ProcessInfo,
    ProcessPhase,
    ProcessSocket,
    ProcessState,
    container_root,
)
from hawker.runtime.pilot import frames
from hawker.runtime.pilot.frames import Frame, FrameKind, MalformedPilotFrame, PayloadReader
from hawker.runtime.spec import Ends, FileSpec, GuestLink, InstanceSpec, ProcessSpec, VolumeDisk
from hawker.value_object import ValueObject

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


SPEC_MAX = 4 << 20
_STATES = {0: ProcessPhase.HELD, 1: ProcessPhase.STARTING, 2: ProcessPhase.RUNNING, 3: ProcessPhase.EXITED}
_EXIT_CODE_MAX, _SIGNAL_MAX = 255, 64
_COPIES = {CopyDirection.OUT: 1, CopyDirection.IN: 2}
_SPEC_PART = frames.PAYLOAD_MAX - 1


class PilotState(IntEnum):
    AWAITING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    EXITED = 4


class PilotHello(ValueObject, frozen=True):
    version: int
    """Of the protocol, `OLDEST_VERSION` or more; a pilot may be older or newer than this daemon."""
    state: PilotState
    instance_id: str  # empty while the pilot awaits its spec


def hello() -> bytes:
    return frames.encode(FrameKind.HELLO, 0, frames.number(frames.MAGIC, 4) + frames.number(frames.VERSION, 2))


def read_hello(frame: Frame) -> PilotHello:
    """Raises `MalformedPilotFrame` for what is no hello, or one of a version that is not spoken here."""
    reader = PayloadReader(frame.payload)
    if frame.kind != FrameKind.HELLO or reader.number(4) != frames.MAGIC:
        raise MalformedPilotFrame("no pilot at the other end")
    version, state = reader.number(2), reader.number(1)
    if version < frames.OLDEST_VERSION:
        raise MalformedPilotFrame(f"a pilot that speaks version {version}; spoken here from {frames.OLDEST_VERSION} on")
    try:
        return PilotHello(version=version, state=PilotState(state), instance_id=reader.words())
    except ValueError as unknown:
        raise MalformedPilotFrame(f"a pilot in state {state}") from unknown


def run_spec(spec: InstanceSpec, *, contained: bool, now: float) -> bytes:
    """The whole run spec; `spec_frames` cuts it to frames. `now` is for a guest's clock, in Unix seconds. Raises
    `BadRequest` when it is too large to send.

    It says no more than version 1 has unless it must, so that a pilot of that version knows its own spec again."""
    more, third = _has_more(spec), encode_guest_spec(spec, now)
    flags = (1 if contained else 0) | (2 if more else 0) | (4 if third else 0)
    parts = chain(
        (
            frames.string(spec.instance_id),
            frames.string(spec.hostname),
            frames.number(flags, 1),
            frames.number(signal_number(spec.stop_signal), 1),
            frames.milliseconds(spec.stop_timeout_s),
            frames.number(spec.output_bytes // 2, 4),
        ),
        _files(spec.files),
        (frames.number(len(spec.processes), 4),),
        map(_process, spec.processes),
        _more(spec) if more else (),
        (third,),
    )
    return _joined(parts)


def _joined(parts: Iterable[bytes]) -> bytes:
    """Once they are too large together no further one is made: what a config names can be gigabytes."""
    kept: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > SPEC_MAX:
            raise BadRequest(f"config and files are too large: at most {SPEC_MAX} bytes can be given to a machine")
        kept.append(part)
    return b"".join(kept)


def _files(given: tuple[FileSpec, ...]) -> Iterator[bytes]:
    """Those with a source are copied later."""
    files = [file for file in given if file.source is None]
    yield frames.number(len(files), 4)
    for file in files:
        yield frames.string(file.path) + frames.number(file.mode, 4) + frames.number(len(file.content), 4)
        yield file.content


def _has_more(spec: InstanceSpec) -> bool:
    return spec.ends is not Ends.FIRST or any(
        process.name or process.root is not None or process.held for process in spec.processes
    )


def _more(spec: InstanceSpec) -> Iterator[bytes]:
    yield frames.number(1 if spec.ends is Ends.TOLD else 0, 1)
    for process in spec.processes:
        yield frames.string(process.name)
        yield frames.string("" if process.root is None else container_root(process.name))
        yield frames.number(1 if process.held else 0, 1)
        yield from _files(process.files)


def spec_frames(encoded: bytes) -> Iterator[bytes]:
    for at in range(0, len(encoded), _SPEC_PART):
        part = encoded[at : at + _SPEC_PART]
        last = at + _SPEC_PART >= len(encoded)
        yield frames.encode(FrameKind.SPEC, 0, (b"\1" if last else b"\0") + part)


def _process(process: ProcessSpec) -> bytes:
    return _command(process.argv, process.env, process.user, process.cwd, _flags(process), 24, 80)


def _flags(process: ProcessSpec) -> int:
    return (1 if process.tty else 0) | (2 if process.stdin else 0)


def _command(
    argv: tuple[str, ...], env: Mapping[str, str], user: str, cwd: str, flags: int, rows: int, cols: int
) -> bytes:
    return b"".join(
        (
            frames.strings(argv),
            frames.strings(tuple(f"{name}={value}" for name, value in env.items())),
            frames.string(user),
            frames.string(cwd),
            frames.number(flags, 1),
            frames.number(rows, 2),
            frames.number(cols, 2),
        )
    )


def exec_request(channel: int, spec: ExecSpec) -> bytes:
    """Raises `BadRequest` for no command, and for one that is too long to send."""
    if not spec.argv:
        raise BadRequest("a command is needed")
    given = (1 if spec.user is not None else 0) | (2 if spec.cwd is not None else 0) | (4 if spec.process else 0)
    beside = frames.number(spec.process, 1) if spec.process else b""
    if spec.copy is not None:
        given, beside = given | 8, beside + frames.number(_COPIES[spec.copy], 1)
    payload = _command(spec.argv, spec.env, spec.user or "", spec.cwd or "", int(spec.tty), spec.rows, spec.cols)
    if len(payload) + 1 + len(beside) > frames.PAYLOAD_MAX:
        raise BadRequest(f"the command and its environment are too long; at most {frames.PAYLOAD_MAX} bytes")
    return frames.encode(FrameKind.EXEC, channel, payload + frames.number(given, 1) + beside)


def attach_request(channel: int, process: int, rows: int, cols: int) -> bytes:
    payload = frames.number(process, 1) + frames.number(rows, 2) + frames.number(cols, 2)
    return frames.encode(FrameKind.ATTACH, channel, payload)


def stop_request(signal: int, timeout_s: float) -> bytes:
    return frames.encode(FrameKind.STOP, 0, frames.number(signal, 1) + frames.milliseconds(timeout_s))


def run_request(channel: int, process: int, run: int) -> bytes:
    return frames.encode(FrameKind.RUN, channel, frames.number(process, 1) + frames.number(run, 4))


def end_request(channel: int, process: int, signal: int, timeout_s: float) -> bytes:
    payload = frames.number(process, 1) + frames.number(signal, 1) + frames.milliseconds(timeout_s)
    return frames.encode(FrameKind.END, channel, payload)


def conclude_request(channel: int, process: int) -> bytes:
    return frames.encode(FrameKind.CONCLUDE, channel, frames.number(process, 1))


def read_ending(reader: PayloadReader) -> Exit:
    """Raises `MalformedPilotFrame`, also for what cannot be."""
    at, code, signal, process = reader.number(8), reader.number(4), reader.number(4), reader.number(1)
    if code > _EXIT_CODE_MAX or signal > _SIGNAL_MAX:
        raise MalformedPilotFrame(f"an end with code {code} and signal {signal}")
    reason = reader.words()
    oom_killed = reader.more and reader.number(1) == 1  # not said before version 2
    return Exit(
        exit_code=code, signal=signal, oom_killed=oom_killed, process=process, exited_at=at / 1e9, reason=reason
    )


def read_state(payload: bytes) -> tuple[int, ProcessState]:
    """A process's number and its state, without the name. Raises `MalformedPilotFrame`."""
    reader = PayloadReader(payload)
    process, code, run, pid, began = (reader.number(width) for width in (1, 1, 4, 4, 8))
    state = _STATES.get(code)
    if state is None:
        raise MalformedPilotFrame(f"a process in state {code}")
    last_exit = read_ending(reader) if reader.number(1) else None
    started_at = began / 1e9 if run else None
    return process, ProcessState(state=state, run=run, pid=pid or None, started_at=started_at, last_exit=last_exit)


def read_process(payload: bytes) -> ProcessInfo:
    reader = PayloadReader(payload)
    pid, started_at, cpu_ms, rss = reader.number(4), reader.number(8) / 1e9, reader.number(8), reader.number(8)
    return ProcessInfo(
        pid=pid,
        started_at=started_at,
        cpu_s=cpu_ms / 1000,
        rss_bytes=rss,
        command=reader.string(),
        cwd=reader.string(),
        sockets=tuple(_socket(line) for line in reader.strings()),
        container=reader.string() if reader.more else "",
    )


def _socket(line: str) -> ProcessSocket:
    proto, _, address = line.partition(" ")
    return ProcessSocket(proto=proto, address=address)


def signal_number(name: str) -> int:
    """ "SIGINT", "INT" and "2" all mean 2. Raises `BadRequest` for what is no signal."""
    text = name.strip().upper()
    if text.isdecimal() and 1 <= int(text) <= 64:
        return int(text)
    known = signal.Signals.__members__.get(text if text.startswith("SIG") else f"SIG{text}")
    if known is None:
        raise BadRequest(f"no such signal: {name!r}")
    return int(known)
