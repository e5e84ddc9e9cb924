"""`hawker edge`: the warden of a host's edge as a process. It imports little, since it lives long and does little."""

import fcntl
import os
import select
import signal
import socket
from pathlib import Path

import click

from hawker import log
from hawker.edge.warden import Warden
from hawker.errors import CannotStart
from hawker.host.spawn import own_program
from hawker.place import Place, default_data_dir

_HELP = """Serve the ports that machines publish, for the node of a data directory. `hawker up` starts this when a
machine needs it, and it goes on without the node's daemon; SIGTERM ends it.
"""
_log = log.bind("hawker.edge")


def _run(data_dir: Path | None, log_level: str) -> int:
    log.configure(log_level)
    folder = Place((data_dir or default_data_dir()).resolve()).edge
    if not folder.is_dir():
        raise CannotStart(f"{folder} is not there: `hawker up` makes it, and starts the edge when a machine needs it")
    return _guard(folder, data_dir or default_data_dir(), log_level)


def _guard(folder: Path, data_dir: Path, log_level: str) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("another edge is there", extra={"folder": str(folder)})
        return 0
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    waking = _woken_by_signals()
    argv = (*own_program(), "edge-process", "--data-dir", str(data_dir), "--log-level", log_level)
    return Warden(argv, lambda wait_s: bool(select.select([waking], [], [], wait_s)[0])).run(waking)


def _woken_by_signals() -> socket.socket:
    """Readable once a signal to stop has come."""
    waking, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.detach(), warn_on_full_buffer=False)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, frame: None)
    return waking


command = click.Command(
    "edge",
    callback=_run,
    help=_HELP,
    params=[
        click.Option(["--data-dir"], type=click.Path(path_type=Path), help="The node's data directory."),
        click.Option(["--log-level"], default="info", help="debug, info, warning or error."),
    ],
)
