"""`hawker dns`: the resolver of a node's machines as a process. It outlives the daemon, as the edge does."""

import fcntl
import os
import resource
import signal
from functools import partial
from pathlib import Path

import anyio
import click
from dns.rdata import load_all_types

from hawker import log
from hawker.clock import Clock, SystemClock
from hawker.dns.forward import Forwarder
from hawker.dns.resolver import NameResolver, Names
from hawker.dns.server import ResolverSockets
from hawker.dns.zone import ZoneSockets
from hawker.errors import CannotStart
from hawker.host.own_user import WRITES, Capability, become, make_folder
from hawker.ids import NodeId
from hawker.names import BOUND, is_kept
from hawker.place import Place, default_data_dir

_LOOK_EVERY_S = 1.0
_log = log.bind("hawker.dns")


def _run(data_dir: Path | None, log_level: str, user: int | None) -> int:
    log.configure(log_level)
    place = Place((data_dir or default_data_dir()).resolve())
    node_id = place.remembered()
    if not place.dns.is_dir() or node_id is None:
        raise CannotStart(f"{place.dns} is not there: `hawker up` makes it, and starts the resolver for its machines")
    lock = os.open(place.dns / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("another resolver is there", extra={"folder": str(place.dns)})
        return 0
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    make_folder(place.dns, user)
    (place.dns / WRITES / BOUND).unlink(missing_ok=True)
    os.chdir(place.dns)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual bound is below that of connections
    anyio.run(partial(_serve, node_id, user), backend_options={"use_uvloop": True})
    return 0


async def _serve(node_id: NodeId, user: int | None) -> None:
    """As `user`, who sees the resolver's folder only from within, and may listen where names are asked for."""
    if user is not None:
        _load()
        become(user, keep=(Capability.NET_BIND_SERVICE, Capability.NET_RAW))
    clock, folder = SystemClock(), Path()
    names = Names(folder, clock)
    resolver = NameResolver(names, Forwarder(names.upstream, clock), clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_told, tasks.cancel_scope)
        sockets = ResolverSockets(resolver, node_id, folder, tasks)
        tasks.start_soon(_until_unneeded, tasks.cancel_scope, sockets, folder, clock)
        tasks.start_soon(ZoneSockets(names.zone, clock).serve)
        await sockets.serve()


def _load() -> object:
    """What is imported at its first use otherwise."""
    load_all_types()  # type: ignore[no-untyped-call]
    return anyio.open_signal_receiver


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
        click.Option(["--user"], type=int, help="Who answers, by number: a user of the host without files."),
    ],
)
