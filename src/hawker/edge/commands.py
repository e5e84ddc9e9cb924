"""`hawker edge`: the warden of a host's edge as a process. It imports little, since it lives long and does little."""

import fcntl
import os
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from hawker import log
from hawker.clock import SystemClock
from hawker.edge.warden import Doors, Sockets, Warden, signals_in
from hawker.errors import CannotStart
from hawker.feed import PROCESSES, edge_version
from hawker.host.spawn import own_program
from hawker.place import Place, default_data_dir

_HELP = """Serve the ports that machines publish, for the node of a data directory. `hawker up` starts this when a
machine needs it, and it goes on without the node's daemon; SIGTERM ends it. After SIGHUP it begins anew with the same
ports, as the version that is installed now: who is in a machine may stay 10 minutes, and who comes meanwhile waits.
"""
_log = log.bind("hawker.edge")


class TakenOver(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a warden that begins anew keeps: descriptors of its lock and its listening sockets, and the
    ids of edge processes that leave."""

    lock: int
    """The descriptor of the file `lock` of the edge's folder, whose lock it still holds."""
    doors: tuple[tuple[str, int, int], ...]
    """Address, port and descriptor of each TCP socket."""
    datagrams: tuple[tuple[str, int, int], ...] = ()
    """Address, port and descriptor of each UDP socket."""
    leaving: tuple[int, ...] = ()
    """Process ids of edge processes that leave: they are waited for, and ended with the warden."""


def _run(data_dir: Path | None, log_level: str, taken: str, user: int | None) -> int:
    log.configure(log_level)
    folder = Place((data_dir or default_data_dir()).resolve()).edge
    if not folder.is_dir():
        raise CannotStart(f"{folder} is not there: `hawker up` makes it, and starts the edge when a machine needs it")
    before = msgspec.json.decode(taken, type=TakenOver) if taken else None
    lock = _locked(folder) if before is None else before.lock
    if lock is None:
        _log.info("another edge is there", extra={"folder": str(folder)})
        return 0
    processes = _processes(folder)
    sockets = Sockets(_sockets(before.doors if before is not None else ()), each=processes)
    datagrams = Sockets(_sockets(before.datagrams if before is not None else ()), udp=True, each=processes)
    (folder / "version").write_text(edge_version(processes))
    options = ["--data-dir", str(data_dir or default_data_dir()), "--log-level", log_level]
    options += [] if user is None else ["--user", str(user)]
    leaving = before.leaving if before is not None else ()
    return _guard((sockets, datagrams), lock, tuple(options), leaving, processes)


def _sockets(doors: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int], list[socket.socket]]:
    found: dict[tuple[str, int], list[socket.socket]] = {}
    for address, port, fd in doors:
        found.setdefault((address, port), []).append(socket.socket(fileno=fd))
    return found


def _processes(folder: Path) -> int:
    """As the node's daemon has ordered."""
    try:
        return max(1, int((folder / PROCESSES).read_text()))
    except (OSError, ValueError):
        return 1


def _locked(folder: Path) -> int | None:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _guard(
    sockets: tuple[Sockets, Sockets], lock: int, options: tuple[str, ...], leaving: tuple[int, ...], processes: int
) -> int:
    waking = _woken_by_signals()
    argv = (*own_program(), "edge-process", *options)
    listening, datagrams = sockets
    warden = Warden(
        argv,
        SystemClock().monotonic,
        listening,
        datagrams=datagrams,
        leaving=leaving,
        processes=processes,
    )
    status = warden.run(waking)
    if warden.renewing and not _to_end(waking):
        _begin_anew(warden, lock, options)
    warden.end_leaving()
    return status


def _to_end(waking: socket.socket) -> bool:
    """Whether more than SIGHUP came while the edge process ended. What asks for the end from here on ends this process
    at once: the next program would not know of it."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    return bool(signals_in(waking) - {signal.SIGHUP})


def _begin_anew(warden: Warden, lock: int, options: tuple[str, ...]) -> None:
    """The same process, as the program that is installed now."""
    doors, datagrams = _descriptors(warden.bound), _descriptors(warden.bound_datagrams)
    for fd in (lock, *(fd for _, _, fd in (*doors, *datagrams))):
        os.set_inheritable(fd, True)
    told = TakenOver(lock=lock, doors=doors, datagrams=datagrams, leaving=tuple(warden.leaving))
    taken = msgspec.json.encode(told).decode()
    program = own_program()
    os.execv(program[0], (*program, "edge", *options, "--taken-over", taken))


def _descriptors(bound: Doors) -> tuple[tuple[str, int, int], ...]:
    return tuple((*door, each.fileno()) for door, sockets in bound.items() for each in sockets)


def _woken_by_signals() -> socket.socket:
    """Readable once a signal to stop has come."""
    waking, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.detach(), warn_on_full_buffer=False)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda number, frame: None)
    return waking


command = click.Command(
    "serve",
    callback=_run,
    help=_HELP,
    params=[
        click.Option(["--data-dir"], type=click.Path(path_type=Path), help="The node's data directory."),
        click.Option(["--log-level"], default="info", help="debug, info, warning or error."),
        click.Option(["--taken-over", "taken"], default="", hidden=True),
        click.Option(["--user"], type=int, help="Who serves requests, by number: a user of the host without files."),
    ],
)
