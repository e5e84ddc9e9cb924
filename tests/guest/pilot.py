"""A pilot on one end of a socket pair, without a driver: what the tests of the program itself talk to."""

import os
import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hawker import guest
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import Exit, OutputChunk, ProcessPhase, ProcessState
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.exit import JournalState, read_journal
from hawker.runtime.pilot.frames import Frame, FrameKind, FrameParser, PayloadReader
from hawker.runtime.pilot.output import Segment, read_output
from hawker.runtime.spec import Ends, InstanceLimits, InstanceSpec, ProcessSpec

DEADLINE_S = 60.0


def spec(
    *commands: str | tuple[str, ...],
    instance: str = "instance-1",
    output_bytes: int = 8 << 20,
    told: bool = False,
    held: tuple[int, ...] = (),
    stdin: bool = False,
) -> bytes:
    """The run spec of plain processes of this host; a string is for the shell. `held` are those that wait; `stdin`:
    their input is open."""
    argvs = [("/bin/sh", "-c", command) if isinstance(command, str) else command for command in commands]
    return messages.run_spec(
        InstanceSpec(
            machine_id=MachineId("00000000000001"),
            instance_id=InstanceId(instance),
            hostname="unused",
            processes=tuple(
                ProcessSpec(argv=argv, env={}, held=index in held, stdin=stdin) for index, argv in enumerate(argvs)
            ),
            ends=Ends.TOLD if told else Ends.FIRST,
            limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
            output_bytes=output_bytes,
            stop_signal="SIGTERM",
            stop_timeout_s=5.0,
        ),
        contained=False,
        now=0,
    )


class Stream(Protocol):
    """What a socket and a connection on a serial port have in common."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Pilot:
    program: subprocess.Popen[bytes]
    stream: Stream
    files: Path
    parser: FrameParser = field(default_factory=FrameParser)
    arrived: deque[Frame] = field(default_factory=deque)

    def send(self, kind: FrameKind, channel: int = 0, payload: bytes = b"") -> None:
        self.stream.sendall(frames.encode(kind, channel, payload))

    def greet(self) -> messages.PilotHello:
        self.stream.sendall(messages.hello())
        return messages.read_hello(self.take(FrameKind.HELLO))

    def run(self, encoded: bytes) -> None:
        self.greet()
        for part in messages.spec_frames(encoded):
            self.stream.sendall(part)

    def take(self, kind: FrameKind) -> Frame:
        """The next frame of that kind; others are passed over."""
        while (frame := self.next()).kind != kind:
            pass
        return frame

    def next(self) -> Frame:
        """Raises `EOFError` when the pilot has closed the stream."""
        while not self.arrived:
            data = self.stream.recv(65536)
            if not data:
                raise EOFError
            self.arrived.extend(self.parser.feed(data))
        return self.arrived.popleft()

    def exit(self) -> Exit:
        return messages.read_ending(PayloadReader(self.take(FrameKind.EXIT).payload))

    def watch(self, channel: int = 7) -> dict[int, ProcessState]:
        """The states as they are now; changes follow on that channel."""
        self.send(FrameKind.WATCH, channel)
        states: dict[int, ProcessState] = {}
        while (frame := self.next()).kind != FrameKind.WATCHING:
            states |= dict([messages.read_state(frame.payload)]) if frame.kind == FrameKind.STATE else {}
        return states

    def state(self) -> tuple[int, ProcessState]:
        return messages.read_state(self.take(FrameKind.STATE).payload)

    def until(self, process: int, state: ProcessPhase, run: int = 1) -> ProcessState:
        """What it is told next of that process in that state and run."""
        while True:
            index, found = self.state()
            if (index, found.state, found.run) == (process, state, run):
                return found

    def status(self) -> int:
        return self.program.wait(DEADLINE_S)

    def story(self) -> JournalState:
        return read_journal(self.files / "journal")

    def output(self) -> list[OutputChunk]:
        return read_output((Segment(self.files / "output.0"), Segment(self.files / "output.1")))


@contextmanager
def pilot(files: Path, *left_open: int, way_in: str = "stream", command: tuple[str, ...] = ()) -> Iterator[Pilot]:
    """`left_open` are descriptors that it inherits by mistake; `command` is what becomes the pilot."""
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    opened = [
        os.open(files / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in ("journal", "output.0", "output.1")
    ]
    fds = [theirs.fileno(), *opened]
    options = [
        word
        for name, fd in zip((way_in, "journal", "output", "output"), fds, strict=True)
        for word in (f"--{name}", str(fd))
    ]
    program = subprocess.Popen(
        [*(command or (str(guest.pilot_path()),)), *options], pass_fds=[*fds, *left_open], stdin=subprocess.DEVNULL
    )
    theirs.close()
    for fd in opened:
        os.close(fd)
    with ours, program:
        try:
            yield Pilot(program, ours, files)
        finally:
            program.terminate()  # it ends its processes, and itself
