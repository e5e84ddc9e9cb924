"""`hawker dns`: the resolver of a node's machines as a process. It outlives the daemon, as the edge does."""

import fcntl
import os
import signal
from pathlib import Path

import anyio
import click

from hawker import log
from hawker.clock import Clock, SystemClock
from hawker.dns.forward import Forwarder
from hawker.dns.resolver import NameResolver, Names
from hawker.dns.server import ResolverSockets
from hawker.dns.zone import ZoneSockets
from hawker.errors import CannotStart
from hawker.names import BOUND, is_kept
from hawker.place import Place, default_data_dir

_LOOK_EVERY_S = 1.0
_log = log.bind("hawker.dns")


def _run(data_dir: Path | None, log_level: str) -> int:
    log.configure(log_level)
    place = Place((data_dir or default_data_dir()).resolve())
    if not place.dns.is_dir() or place.remembered() is None:
        raise CannotStart(f"{place.dns} is not there: `hawker up` makes it, and starts the resolver for its machines")
    lock = os.open(place.dns / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("another resolver is there", extra={"folder": str(place.dns)})
        return 0
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    (place.dns / BOUND).unlink(missing_ok=True)
    anyio.run(_serve, place, backend_options={"use_uvloop": True})
    return 0


async def _serve(place: Place) -> None:
    clock, node_id = SystemClock(), place.remembered()
    assert node_id is not None, "it was there a moment ago"
    names = Names(place.dns, clock)
    resolver = NameResolver(names, Forwarder(names.upstream, clock), clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_told, tasks.cancel_scope)
        sockets = ResolverSockets(resolver, node_id, place.dns, tasks)
        tasks.start_soon(_until_unneeded, tasks.cancel_scope, sockets, place.dns, clock)
        tasks.start_soon(ZoneSockets(names.zone, clock).serve)
        await sockets.serve()


async def _until_unneeded(scope: anyio.CancelScope, sockets: ResolverSockets, folder: Path, clock: Clock) -> None:
    """While the daemon is away, it goes on for machines alone."""
    while sockets.needed or is_kept(folder):
        await clock.sleep(_LOOK_EVERY_S)
    scope.cancel()


async def _until_told(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


command = click.Command(
    "dns",
    callback=_run,
    help="Answer the names that machines ask for. `hawker up` starts this with its first machine; SIGTERM ends it.",
    params=[
        click.Option(["--data-dir"], type=click.Path(path_type=Path), help="The node's data directory."),
        click.Option(["--log-level"], default="info", help="debug, info, warning or error."),
    ],
)
