"""`hawker broker`: the public front door as a process of its own, beside a node whose catalog it reads. It keeps
nothing: any number of them serve one node, and one that is killed loses no more than its open connections.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio

from hawker import log
from hawker.api.listener import bind, serving
from hawker.api.server import PROGRAM_VERSION, Server
from hawker.auth.peer_tokens import PeerTokens
from hawker.auth.tokens import Tokens
from hawker.catalog.point_reads import PointReader
from hawker.clock import Clock, system_clock
from hawker.errors import CannotStart
from hawker.gateway.catalog_directory import CatalogDirectory
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import HttpPeers
from hawker.gateway.rate_limits import RateLimits
from hawker.gateway.revocations import FleetRevocations, RemoteRevocations
from hawker.gateway.token_handlers import TokenHandlers
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import load_preferences
from hawker.observe.metrics import build_metrics
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.node_files import ClusterFile, own_node, own_region, root_token

_log = log.bind("hawker.broker")
_NO_AGENT = "and cannot ask an agent (--catalog-url), beside which `hawker up` answers clients itself"


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises `CannotStart`."""
    log.configure(settings.log_level)
    return anyio.run(_main, settings, system_clock(os.environ), backend_options={"use_uvloop": True})


async def _main(settings: Settings, clock: Clock) -> int:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with AsyncExitStack() as stack:
            await _serve(settings, broker_server(settings, clock, stack), signals)
    return 0


def broker_server(settings: Settings, clock: Clock, stack: AsyncExitStack) -> Server:
    """All that a broker is made of. Raises `CannotStart` when there is no node in a cluster in the data directory."""
    if settings.catalog_url is not None:
        raise CannotStart(f"a broker of its own reads its node's catalog, {_NO_AGENT}: leave catalog_url away")
    place, metrics = Place(settings.data_dir), build_metrics(PROGRAM_VERSION)
    file = ClusterFile(place.cluster, clock)
    node, root = own_node(place), root_token(place)
    if not place.catalog.exists():
        raise CannotStart(
            f"there is no {place.catalog}: start the node first; a broker of its own reads it, {_NO_AGENT}"
        )
    glance = PointReader(place.catalog)
    stack.callback(glance.close)
    directory = CatalogDirectory(glance, clock, node, own_region(glance, node))
    peers = HttpPeers(directory.address_of, PeerTokens(file.keys).own)
    stack.push_async_callback(peers.close)
    ended = FleetRevocations(directory.revoked, RemoteRevocations(peers, node))
    tokens = Tokens(root, clock, ended, directory.org_of)
    limiter = RateLimits(clock, metrics.api.limited) if settings.rate_limits else None
    broker = Gateway(
        directory,
        peers,
        Beside(node=node, exposition=metrics.exposition),
        clock,
        market=MarketHandlers(directory, peers, load_preferences(settings.market), clock, limited=settings.rate_limits),
        tokens=TokenHandlers(tokens, ended, clock, lambda app: directory.org_of(app) is not None),
    )
    return Server(broker.handlers(), tokens, clock, observer=metrics.api, limiter=limiter)


async def _serve(settings: Settings, server: Server, signals: AsyncIterator[signal.Signals]) -> None:
    host, _, port = settings.listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {settings.listen!r}")
    async with serving(server, bind(host.strip("[]"), int(port))) as url:
        sys.stdout.write(f"ready {url}\n")
        sys.stdout.flush()
        _log.info("ready", extra={"url": url})
        told = await anext(signals)
        _log.info("stopping", extra={"signal": told.name})
