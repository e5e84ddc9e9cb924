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
from hawker.api.routes import PUBLIC_ROUTES
from hawker.api.server import Server
from hawker.auth.node_certificate import NodePapers
from hawker.auth.peer_key import PeerTokens
from hawker.auth.tokens import Tokens
from hawker.catalog.reads import PointReader
from hawker.cli.entry import collect_as_usual
from hawker.clock import Clock, system_clock
from hawker.errors import CannotStart
from hawker.gateway.catalog_directory import CatalogDirectory
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import HttpPeers
from hawker.gateway.rate_limits import RateLimits
from hawker.gateway.tokens import FleetRevocations, RemoteRevocations, TokenHandlers
from hawker.http.mutual_tls import MutualTls
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import load_preferences
from hawker.observe.metrics import build_metrics
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.node_files import ClusterFile, own_node, own_region, root_token
from hawker.up.servers import answer_flyctl
from hawker.version import VERSION

_log = log.bind("hawker.broker")
_NO_AGENT = "and cannot ask an agent (--catalog-url), beside which `hawker up` answers clients itself"


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises `CannotStart`."""
    collect_as_usual()
    log.configure(settings.log_level)
    return anyio.run(_main, settings, system_clock(os.environ), backend_options={"use_uvloop": True})


async def _main(settings: Settings, clock: Clock) -> int:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with AsyncExitStack() as stack:
            await _serve(settings, broker_server(settings, clock, stack), signals)
    return 0


def broker_server(settings: Settings, clock: Clock, stack: AsyncExitStack) -> Server:
    """The server of a broker, with all that it is made of. Raises `CannotStart` when there is no node in a cluster in
    the data directory."""
    if settings.catalog_url is not None:
        raise CannotStart(f"a broker of its own reads its node's catalog, {_NO_AGENT}: leave catalog_url away")
    place, metrics = Place(settings.data_dir), build_metrics(VERSION)
    file = ClusterFile(place.cluster, clock)
    node, root = own_node(place), root_token(place)
    if not place.catalog.exists():
        raise CannotStart(
            f"there is no {place.catalog}: start the node first; a broker of its own reads it, {_NO_AGENT}"
        )
    glance = PointReader(place.catalog)
    stack.callback(glance.close)
    directory = CatalogDirectory(glance, clock, node, own_region(glance, node))
    tls = MutualTls(NodePapers(node, file.keys))
    peers = HttpPeers(directory.address_of, PeerTokens(file.keys).own, me=node, tls=tls)
    own = peers.own(root)
    stack.push_async_callback(peers.close)
    ended = FleetRevocations(directory, RemoteRevocations(own, node))
    tokens = Tokens(root, clock, ended, directory.org_of)
    limited, spares_root = settings.rate_limits is not False, settings.rate_limits is None
    limiter = RateLimits(clock, metrics.api.limited, spares_root=spares_root) if limited else None
    broker = Gateway(
        directory,
        peers,
        Beside(node=node, exposition=metrics.exposition, own=own),
        clock,
        market=MarketHandlers(
            directory,
            peers,
            load_preferences(settings.market),
            clock,
            limited=limited,
            registries=settings.listed_registries,
        ),
        tokens=TokenHandlers(tokens, ended, clock, lambda app: directory.org_of(app) is not None),
        registries=settings.listed_registries,
    )
    handlers = broker.handlers()
    answer_flyctl(handlers, clock, limiter, None, metrics.api)
    observer, proxies = metrics.api, settings.proxies
    return Server(handlers, tokens, clock, routes=PUBLIC_ROUTES, observer=observer, limiter=limiter, proxies=proxies)


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
