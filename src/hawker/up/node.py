"""`hawker up`: every role of a node in one process. Builds each object once, joins them, serves until told to stop.

Stopping leaves machines running; the next `up` on the same directory takes them up again and resumes every run.
"""

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import aiohttp
import anyio
import msgspec

from hawker import log
from hawker.api.handlers import Handlers
from hawker.api.listener import bind, serving
from hawker.api.server import PROGRAM_VERSION, Server
from hawker.broker.handlers import TokenHandlers
from hawker.broker.preferences import Preferences, load_preferences
from hawker.broker.rate_limits import RateLimits
from hawker.broker.revocations import Revocations
from hawker.broker.tokens import Tokens, load_or_create_token
from hawker.clock import Clock, system_clock
from hawker.errors import CannotStart, Unavailable
from hawker.host.facts import read_facts
from hawker.host.systemd import Notifier, handed_over
from hawker.ids import new_node_id
from hawker.image.cache import ImageCache
from hawker.observe.metrics import build_metrics
from hawker.observe.spans import load_exporter
from hawker.observe.stall import Patience
from hawker.observe.watchdog import Watchdog
from hawker.place import Place
from hawker.runtime.roster import Roster
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.store.sqlite import SqliteStore
from hawker.up.alone import place_alone
from hawker.up.build import archive_of, deps_of, image_settings, parts_of, traces_of
from hawker.worker.ephemeral import destroy_everything
from hawker.worker.format import enter
from hawker.worker.handlers import worker_handlers
from hawker.worker.parts import Parts
from hawker.worker.reconcile import Reconciler
from hawker.worker.records import APPS, NODE, NodeRecord
from hawker.worker.refusal import or_refuse, wrapped_in
from hawker.worker.serve import begin
from hawker.worker.supervisor import Supervisor

_log = log.bind("hawker.up")
_STOP_S = 2.0  # after the server's own grace; the whole stop stays below five seconds


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises `CannotStart`."""
    log.configure(settings.log_level)
    os.umask(0o077)
    return anyio.run(_main, settings, system_clock(os.environ), backend_options={"use_uvloop": True})


async def _main(settings: Settings, clock: Clock) -> int:
    """From the first moment a signal to stop is heard, so that a node that has just begun ends as cleanly as any."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            await _live(settings, clock, signals)
        except BaseExceptionGroup as group:
            raise (wrapped_in(group) or group) from group.__cause__
    return 0


async def _live(settings: Settings, clock: Clock, signals: AsyncIterator[signal.Signals]) -> None:
    """What can be refused is refused before anything is made."""
    notifier, given = Notifier.of(os.environ, os.getpid()), handed_over(os.environ, os.getpid())
    facts, place, metrics = read_facts(), Place(settings.data_dir), build_metrics(PROGRAM_VERSION)
    exporter = load_exporter() if settings.otel_endpoint else None
    roster = Roster(settings, facts, place, clock)
    drivers = await roster.decide()
    archive = archive_of(settings, place)
    preferences = load_preferences(settings.market)
    listener = given or _bind(settings.listen)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        place.make()
        stack.enter_context(place.held())
        store = SqliteStore(place.store, metrics.store)
        metrics.store.waiting.set_function(lambda: store.waiting)
        stack.push_async_callback(store.close)
        with or_refuse(settings.data_dir):
            await enter(store)
            node = await _node_record(store, place, settings.region, clock)
        place.remember(node.id)
        roster.remember(drivers)
        driver = roster.driver(drivers, node.id)
        images = ImageCache(place.images, image_settings(settings), clock)
        stack.push_async_callback(images.aclose)
        with or_refuse(settings.data_dir):
            await images.open()
        http = await stack.enter_async_context(aiohttp.ClientSession())
        with or_refuse(settings.data_dir):
            deps = await deps_of(settings, place, driver, node.id, store, images, clock, archive)
        traces = traces_of(stack, exporter, settings, node, metrics) if exporter else None
        parts = parts_of(deps, node, facts, http, metrics, traces, drivers)
        patience = Patience(report_s=settings.watchdog_report_s, end_s=settings.watchdog_end_s)
        with Watchdog(clock, patience, metrics.loop).watching():
            await _serve(settings, place, listener, notifier, parts, preferences, signals)


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {listen!r}")
    return bind(host.strip("[]"), int(port))


async def _node_record(store: Store, place: Place, region: str, clock: Clock) -> NodeRecord:
    """Who this node is: written at first boot, and when its region changes. With a new store it is who it was."""
    known = store.get(NODE, "self")
    if known is not None and known.region == region:
        return known
    if known is not None:
        record = msgspec.structs.replace(known, region=region)
    else:
        record = NodeRecord(id=place.remembered() or new_node_id(clock), region=region, created_at=clock.now())
    await store.write(lambda tx: tx.put(NODE, "self", record))
    return record


class _Told:
    """To stop, by a signal. One that comes while the node still begins, which may wait for a disk, ends that."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.signal = ""

    async def hear(self, signals: AsyncIterator[signal.Signals], boot: anyio.CancelScope) -> None:
        self.signal = (await anext(signals)).name
        self.event.set()
        boot.cancel()


async def _serve(
    settings: Settings,
    place: Place,
    listener: socket.socket,
    notifier: Notifier,
    parts: Parts,
    preferences: Preferences,
    signals: AsyncIterator[signal.Signals],
) -> None:
    """Take up what the last daemon left, then answer."""
    deps = parts.deps
    handlers, tokens = _front(place, parts)
    place_alone(parts, handlers, preferences)
    limiter = RateLimits(deps.clock, parts.metrics.api.limited) if deps.settings.rate_limits else None
    server = Server(handlers, tokens, deps.clock, observer=parts.metrics.api, limiter=limiter)
    told = _Told()
    supervisor, reconciler = Supervisor(deps, parts.runner, parts.changes), Reconciler(deps, parts.runner)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.keep_alive, deps.clock)
        with anyio.CancelScope() as boot, or_refuse(settings.data_dir):
            tasks.start_soon(told.hear, signals, boot)
            await begin(tasks, parts, supervisor, reconciler)
        if boot.cancelled_caught:
            _end_within(_STOP_S)
            tasks.cancel_scope.cancel()
            return
        async with serving(server, listener) as url:
            place.announce(url)
            gc.freeze()  # what is here now stays: else the collector walks it again and again, and nobody is answered
            sys.stdout.write(f"ready {url}\n")
            sys.stdout.flush()
            notifier.ready(f"serving {url}")
            _log.info("ready", extra={"url": url, "node": parts.node.id, "driver": deps.driver.name})
            await told.event.wait()
            _log.info("stopping", extra={"signal": told.signal})
            notifier.stopping()
        if settings.ephemeral:
            await destroy_everything(parts)
        _end_within(_STOP_S)
        with suppress(Unavailable):
            await parts.runner.leave()
        tasks.cancel_scope.cancel()


def _front(place: Place, parts: Parts) -> tuple[Handlers, Tokens]:
    """The broker's part: whom the node answers, and its own answers beside the worker's."""
    store, clock = parts.deps.store, parts.deps.clock

    def org_of(app: str) -> str | None:
        record = store.get(APPS, app)
        return None if record is None else record.org

    revocations = Revocations(store, clock)
    tokens = Tokens(load_or_create_token(place.token, clock), clock, revocations, org_of)
    handlers = worker_handlers(parts)
    TokenHandlers(tokens, revocations, clock, lambda app: org_of(app) is not None).bind(handlers)
    return handlers, tokens


def _end_within(seconds: float) -> None:
    """A step may be in a thread that nothing can interrupt, such as one that unpacks a large image. Being killed there
    costs no more than that step, so a stop that was asked for does not wait for it."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
