"""A pilot that says what a test tells it to say, whatever it is told."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hawker.runtime.pilot import frames
from hawker.runtime.pilot.frames import Kind
from hawker.runtime.pilot.launch import short_path
from hawker.runtime.pilot.rundir import RunDir

HELLO = frames.encode(Kind.HELLO, 0, frames.number(frames.MAGIC, 4) + b"\1\0\2" + frames.string("instance"))
DEADLINE_S = 10.0


@contextmanager
def pilot(run: RunDir, *answers: bytes, hold: bool = False) -> Iterator[None]:
    """One that says `answers` to whoever connects, and then closes, unless it is to `hold`."""
    with socket.socket(socket.AF_UNIX) as listener:
        with short_path(run.socket) as path:
            listener.bind(path)
        listener.listen()
        done = threading.Event()

        def serve() -> None:
            with listener.accept()[0] as stream, suppress(OSError):
                stream.sendall(b"".join(answers))
                if hold:
                    done.wait(DEADLINE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        done.set()
        thread.join(DEADLINE_S)
