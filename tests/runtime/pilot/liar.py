"""Pilots that say what a test tells them to say, whatever they are told, behind each kind of channel."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hawker.host.local_socket import short_path
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.frames import Frame, FrameKind, FrameParser
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.serial_ports import NONCE_BYTES, begin

DEADLINE_S = 60.0
_GONE = 1 << 20  # as if so much was heard, when the client says no more
_MARK_BYTES = len(begin(bytes(NONCE_BYTES)))


def hello(version: int, instance: str = "instance") -> bytes:
    said = frames.number(frames.MAGIC, 4) + frames.number(version, 2) + b"\2" + frames.string(instance)
    return frames.encode(FrameKind.HELLO, 0, said)


HELLO = hello(1)


@contextmanager
def pilot(run: RunDir, *answers: bytes, asked: bytes = b"", hold: bool = False) -> Iterator[None]:
    """One that says `answers` to whoever connects, `asked` once it hears more than a greeting, and then closes, unless
    it is to `hold`."""
    with _listening(run) as listener:
        done = threading.Event()

        def serve() -> None:
            with listener.accept()[0] as stream, suppress(OSError):
                stream.sendall(b"".join(answers))
                heard = 0
                while asked and heard <= len(messages.hello()):
                    heard += len(stream.recv(4096)) or _GONE
                stream.sendall(asked)
                if hold:
                    done.wait(DEADLINE_S)

        with _thread(serve):
            yield
            done.set()


@contextmanager
def answering(run: RunDir, answer: Callable[[Frame], bytes], *, version: int = frames.VERSION) -> Iterator[None]:
    """One that greets and says `answer` to each frame that it hears after the client's greeting."""
    with _listening(run) as listener:

        def serve() -> None:
            with listener.accept()[0] as stream, suppress(OSError):
                stream.sendall(hello(version))
                parser = FrameParser()
                while data := stream.recv(1 << 16):
                    for frame in parser.feed(data):
                        stream.sendall(b"" if frame.kind == FrameKind.HELLO else answer(frame))

        with _thread(serve):
            yield


@contextmanager
def port_pilot(listener_fd: int, *answers: bytes, before: bytes = b"") -> Iterator[list[bytes]]:
    """One at the end of a serial port: it says `before`, takes the client up, says `answers`, and hears the client out:
    what it heard is in the list then."""
    heard = [b""]

    def serve() -> None:
        with socket.socket(fileno=os.dup(listener_fd)) as listener, listener.accept()[0] as stream:
            stream.sendall(before)
            mark = stream.recv(_MARK_BYTES, socket.MSG_WAITALL)
            with suppress(OSError):
                stream.sendall(mark + b"".join(answers))
                heard[0] = mark
                while data := stream.recv(1 << 16):
                    heard[0] += data

    with _thread(serve):
        yield heard


@contextmanager
def _listening(run: RunDir) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        with short_path(run.socket) as path:
            listener.bind(path)
        listener.listen()
        yield listener


@contextmanager
def _thread(serve: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join(DEADLINE_S)
