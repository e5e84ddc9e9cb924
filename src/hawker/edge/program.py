"""The program that an edge process runs: it becomes who it is to be, and ends when its warden does, or when told to."""

import gc
import os
import resource
import signal
import socket
from functools import partial
from pathlib import Path

import anyio
import click
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hawker import log
from hawker.clock import Clock, PooledClock
from hawker.edge.process import DRAIN_S, Edge, EdgeParts
from hawker.edge.shard import EdgeShard
from hawker.edge.warden import CHANNEL_FD
from hawker.host.own_user import become
from hawker.place import Place, default_data_dir

_log = log.bind("hawker.edge")


def _run(data_dir: Path | None, log_level: str, user: int | None, number: int, processes: int) -> int:
    """The exit status. The warden is at `CHANNEL_FD`. As `user`, who sees the edge's folder only from within."""
    log.configure(log_level)
    _allow_descriptors()
    os.chdir(Place((data_dir or default_data_dir()).resolve()).edge)
    channel = socket.socket(fileno=CHANNEL_FD)
    channel.setblocking(False)
    anyio.run(
        partial(_live, channel, PooledClock(), user, EdgeShard(number, processes)), backend_options={"use_uvloop": True}
    )
    return 0


async def _live(channel: socket.socket, clock: Clock, user: int | None, shard: EdgeShard) -> None:
    if user is not None:
        _load()
        become(user)
    async with anyio.create_task_group() as tasks:
        edge = Edge(Path(), channel, clock, tasks, EdgeParts(shard=shard))
        gc.freeze()  # what is here now stays: the collector would walk it, and nobody is answered meanwhile
        tasks.start_soon(_until_told, edge, tasks.cancel_scope)
        tasks.start_soon(_until_too_large, edge, tasks.cancel_scope)
        await edge.serve()
        if not edge.leaving:
            tasks.cancel_scope.cancel()


def _load() -> tuple[object, ...]:
    """What is imported at its first use otherwise."""
    return anyio.open_signal_receiver, AESGCM, InvalidTag


async def _until_told(edge: Edge, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*DRAIN_S) as signals:
        async for told in signals:
            if not edge.leaving:
                await edge.drain(DRAIN_S[told], stays=told == signal.SIGHUP)
            if told != signal.SIGHUP or not edge.gates.have_inside:
                scope.cancel()
                return
            if not edge.leaving:
                edge.spawn(_until_left, edge, scope)


async def _until_left(edge: Edge, scope: anyio.CancelScope) -> None:
    await edge.leave()
    scope.cancel()


async def _until_too_large(edge: Edge, scope: anyio.CancelScope) -> None:
    await edge.too_large.wait()
    _log.error("the edge process needs too much memory, and makes room for the next one")
    await edge.drain(DRAIN_S[signal.SIGHUP])
    scope.cancel()


def _allow_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


command = click.Command(
    "edge-process",
    callback=_run,
    help="What the warden of the edge starts.",
    params=[
        click.Option(["--data-dir"], type=click.Path(path_type=Path)),
        click.Option(["--log-level"], default="info"),
        click.Option(["--user"], type=int),
        click.Option(["--process", "number"], type=int, default=0),
        click.Option(["--of", "processes"], type=int, default=1),
    ],
)
