"""Unix sockets by which processes of one host reach each other, at paths of any length."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.host.own_user import show_to


def listen_at(path: Path, user: int | None, waiting: int = 128) -> socket.socket:
    """A listening socket at `path`, in place of what was there, for `user` and for us; at most `waiting` connections
    wait to be accepted. Raises `OSError`."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as name:
            listener.bind(name)
        show_to(user, path, writable=True)
        listener.listen(waiting)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def connect_to(path: Path) -> socket.socket:
    """A socket that is connected to the one at `path`, without waiting. Raises `OSError` where nobody listens, or where
    no more connections may wait."""
    joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    joined.setblocking(False)
    try:
        with short_path(path) as name:
            joined.connect(name)
    except OSError:
        joined.close()
        raise
    return joined


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A short name of `path` within the block, through its directory's descriptor: a socket's address holds 107 bytes
    and a path may be longer."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
