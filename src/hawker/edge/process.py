"""An edge process: builds each object once and joins them."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from operator import attrgetter
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from hawker import log
from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.certificates import CertificateBook
from hawker.edge.datagram_hops import DatagramGate, DatagramHops
from hawker.edge.datagrams import DatagramFlows, Scarce
from hawker.edge.dialing import Dialer
from hawker.edge.explaining import Explainer
from hawker.edge.gates import Gate, Gates
from hawker.edge.hop_door import HopDoor
from hawker.edge.hops import HopDialer, identity_in, stay_at
from hawker.edge.http_connection import HttpConnections
from hawker.edge.kept_machines import KeptMachines
from hawker.edge.leaving import EarlierProcesses, Leaver
from hawker.edge.listeners import Listeners
from hawker.edge.machine_connection import MachineConnection, MachinePool
from hawker.edge.proxy_protocol import ProxiedConnections
from hawker.edge.replay_cache import ReplayRoutes
from hawker.edge.requester import HttpServices, RequestTasks
from hawker.edge.rest import SHORT_S, RestWish, may_rest, to_restore
from hawker.edge.routes import Door, Routes, ServiceTarget
from hawker.edge.shard import EdgeShard
from hawker.edge.splice import RawConnections, Side
from hawker.edge.tls_connection import TlsConnections, TlsServices
from hawker.edge.visits import Counters, Spawn, Visits
from hawker.edge.warden import MemoryWatch, give_back, memory_bytes
from hawker.edge.worker_link import UNHEARD, WorkerLink
from hawker.fair.connections import ConnectionTable, DescriptorCount
from hawker.fair.occupancy import Occupancy
from hawker.fair.round_robin import RoundRobin
from hawker.fair.table import (
    EDGE_CONNECTIONS,
    EDGE_HANDSHAKES,
    EDGE_HOPS,
    EDGE_KEPT_BYTES,
    EDGE_WAKES,
)
from hawker.fair.turns import Share
from hawker.feed import (
    LEAVE_S,
    AllMachines,
    AskReport,
    CloseMachine,
    EdgeLogLine,
    EdgeReport,
    GatePlace,
    ListenState,
    MachineClosed,
    MachineRoute,
    SealedCertificate,
)
from hawker.host.own_user import WRITES
from hawker.http.mutual_tls import MutualTls
from hawker.ids import AppName, MachineId
from hawker.route_question import AskRoute, RouteExplained
from hawker.value_object import ValueObject

_LOOK_AGAIN_S, _LOOK_AT_REST_S = 0.1, 1.0
_LINES_PER_S = 10
_FEW = 1000
_log = log.bind("hawker.edge")
_REST_EVERY_S = 1.0
DRAIN_S = {signal.SIGHUP: 5.0, signal.SIGTERM: 2.0, signal.SIGINT: 2.0}
"""Seconds that requests under way may hold up the end of the process, by signal; requests that come meanwhile wait for
the next process."""
_IDLE_S, _LAST_BYTES_S, _DRAIN_EVERY_S = 0.3, 0.05, 0.02
_ALONE = 8  # requests of one address in a turn of the event loop in which nobody else asks


class EdgeParts(ValueObject, frozen=True, kw_only=True):
    """The parts that an edge is made of; a simulator hands in parts of its own."""

    link: Callable[[Path, Clock], WorkerLink] = WorkerLink
    identity: Callable[[Path], MutualTls] = identity_in
    routes: Callable[[], Routes] = Routes
    gates: Callable[[Callable[[], float], Mapping[MachineId, MachineRoute]], Gates] = Gates
    visits: type[Visits] = Visits
    http: type[HttpConnections] = HttpConnections
    rests: Callable[[Iterable[Gate], float], Iterator[RestWish]] = may_rest
    restores: Callable[[Iterable[Gate], float], Gate | None] = to_restore
    wakes: Share = EDGE_WAKES
    hops: type[HopDialer] = HopDialer
    flows: type[DatagramFlows] = DatagramFlows
    flow_hops: type[DatagramHops] = DatagramHops
    flow_gate: type[DatagramGate] = DatagramGate
    proxied: type[ProxiedConnections] = ProxiedConnections
    memory: Callable[[], int] = memory_bytes
    shard: EdgeShard = EdgeShard()


_USUAL = EdgeParts()


class Edge:
    """An edge process. Keeps `FeedReader`: it hands what the worker says to routes, gates and listeners."""

    def __init__(
        self, folder: Path, channel: socket.socket, clock: Clock, tasks: TaskGroup, parts: EdgeParts = _USUAL
    ) -> None:
        self._now, self._clock, self._tasks, self._needs_others = clock.monotonic, clock, tasks, anyio.CancelScope()
        self._joined, self._own = anyio.CancelScope(), folder / WRITES  # who leaves hears no worker any more
        self._shard, self._rests, self._restores = parts.shard, parts.rests, parts.restores
        self.figures = AppFigures()
        self.counters = Counters({}, self.figures)
        self._said: dict[tuple[AppName, str], int] = {}
        self._short_since: dict[AppName, float] = {}  # apps of which fewer run than are to
        self._requests, self._routes = RequestTasks(self.counters), parts.routes()
        self.gates = parts.gates(clock.random, self._routes.machines)
        self._link = parts.link(folder, clock)
        self._visits = parts.visits(
            self._routes, self.gates, self._link, self.spawn, self._now, self.counters, parts.wakes
        )
        identity = parts.identity(folder)
        self._hop_dialer = parts.hops(identity, clock, self._host_lost)
        dialer = Dialer(self._visits, clock, self._hop_dialer, self.figures)
        self._pool = MachinePool[MachineConnection](self._now)
        self._pool_of_hops = MachinePool[Side](self._now)
        self.kept, self._region, self._drain_s = Occupancy(EDGE_KEPT_BYTES), "local", LEAVE_S
        self.certificates = CertificateBook(folder, clock)
        descriptors = DescriptorCount(self._now)
        self.memory, self.too_large = MemoryWatch(self._now, parts.memory, give_back), asyncio.Event()
        self._came = asyncio.Event()  # somebody, since the last look

        def scarce() -> bool:
            """Whether the process is short of room. Asked for each connection and flow that comes."""
            self._came.set()
            return descriptors.scarce() or self.memory.large()

        self._clients = table = ConnectionTable(EDGE_CONNECTIONS, scarce, is_own)
        hops = ConnectionTable(EDGE_HOPS, scarce)
        flow_hops = parts.flow_hops(self._hop_dialer, clock)
        self.datagram_gate = gate = parts.flow_gate(
            self._routes, self._visits, flow_hops, self.spawn, clock, self.counters, self.say
        )
        pool, counters = self._pool_of_hops, self.counters
        self.hops = HopDoor(identity, self._visits, dialer, self.spawn, clock, counters, hops, gate, pool)
        self._raw = RawConnections(
            self._routes, self._visits, dialer, self.spawn, clock, self.counters, self.figures, table, self.say
        )
        self.datagrams = self._with_datagrams(parts.flows, flow_hops, scarce)
        replays = ReplayRoutes()
        self._http = parts.http(self._shared(dialer, table, replays))
        self._shaking = ConnectionTable(EDGE_HANDSHAKES, scarce, is_own)
        self.handshakes = self._with_tls()
        self.proxied = parts.proxied(self.accept, scarce, clock, self.counters)
        self._explainer = Explainer(
            self._routes, self.gates, self.certificates, replays, self.proxied.believes, self._challenge
        )
        here = table, hops, self._shaking, self.proxied.table, self.datagrams
        self._timed: tuple[Sized, ...] = (*here, self._pool, self._pool_of_hops, self._hop_dialer)
        self._listeners = Listeners(channel, self._doors, self.proxied.accept, self.datagrams.open, clock)

    def _doors(self) -> Iterable[Door]:
        return self._routes.doors

    def _with_datagrams(self, made: type[DatagramFlows], hops: DatagramHops, scarce: Scarce) -> DatagramFlows:
        found, clock, figures = (self._routes, self._visits), self._clock, self.figures
        return made(*found, hops, self.spawn, clock, self.counters, figures, scarce, self.say)

    def _shared(self, dialer: Dialer, table: ConnectionTable, replays: ReplayRoutes) -> HttpServices:
        return HttpServices(
            routes=self._routes,
            visits=self._visits,
            dialer=dialer,
            machines=KeptMachines(self._pool, self._hop_dialer, self.figures, self._now),
            replays=replays,
            kept=self.kept,
            table=table,
            entrance=RoundRobin(alone=_ALONE),
            clock=self._clock,
            counters=self.counters,
            figures=self.figures,
            spawn=self.spawn,
            say=self.say,
            claimer=self.certificates.app_of,
            challenge=self._challenge,
            region=lambda: self._region,
        )

    def _with_tls(self) -> TlsConnections:
        return TlsConnections(
            TlsServices(
                routes=self._routes,
                book=self.certificates,
                table=self._shaking,
                spared=is_own,
                clock=self._clock,
                counters=self.counters,
                figures=self.figures,
                say=self.say,
                region=lambda: self._region,
                accept=self._accept_in_tls,
            )
        )

    @property
    def held(self) -> int:
        """How many requests wait for a machine."""
        return self._visits.waiting

    async def serve(self) -> None:
        """Serve clients until the warden is gone."""
        await EarlierProcesses(self._own, self.gates, self._clock).meet(self._tasks)
        if self._shard.socket is not None:
            await self.hops.serve_neighbors(self._shard.socket)
            self._tasks.start_soon(self._stay_at_others)
        self._tasks.start_soon(self._join_worker)
        self._tasks.start_soon(self.hops.serve)
        self.watch()
        await self._listeners.take()

    async def _join_worker(self) -> None:
        with self._joined:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._link.serve, self)
                if not self._shard.number:  # all are told the same
                    tasks.start_soon(self._link.keep)
                tasks.start_soon(self._listeners.beat)

    async def _stay_at_others(self) -> None:
        with self._needs_others:
            async with anyio.create_task_group() as tasks:
                for each in self._shard.others:
                    tasks.start_soon(stay_at, each, self._clock)

    @property
    def leaving(self) -> bool:
        return self._joined.cancel_called

    async def leave(self, within_s: float | None = None) -> None:
        """Let the next process begin, while the visits in machines stay, at most `within_s` seconds. Returns when no
        visit is left."""
        self.gates.shut()
        self._joined.cancel()
        self.datagrams.end()
        for machine_id in self.gates.of:
            self._drop_kept(machine_id)
        leaver = Leaver(self._own, os.getpid(), self.gates, self._clock)
        await leaver.serve(self._drain_s if within_s is None else within_s, self._listeners.leave)

    async def drain(self, within_s: float, *, stays: bool = False) -> None:
        """Let no request in any more, and return when every visit that has an end has ended, or after `within_s`
        seconds. With `stays` the process goes on for others."""
        began = self._now()
        self._listeners.close()
        self.hops.close(together=stays)
        with anyio.move_on_after(within_s):
            while self._under_way(at_once=self._now() >= began + _IDLE_S):
                await self._clock.sleep(_DRAIN_EVERY_S)
            self._needs_others.cancel()
            self._hop_dialer.end_free()
            while stays and self.hops.neighbors_come:
                await self._clock.sleep(_DRAIN_EVERY_S)
        self._needs_others.cancel()
        await self._clock.sleep(_LAST_BYTES_S)
        self.hops.end(stays=stays)

    def _under_way(self, *, at_once: bool) -> int:
        """How much there is to wait for; connections that rest are closed `at_once`, or asked to leave."""
        inside = sum(gate.total - gate.lasting for gate in self.gates.of.values())
        return self._http.drain(at_once=at_once) + inside + self.held + len(self._shaking) + len(self.proxied.table)

    @property
    def spawn(self) -> Spawn:
        return self._requests.spawn

    def watch(self) -> None:
        """Begin the tasks that look after requests, connections and machines now and then, whoever connects."""
        self._tasks.start_soon(self._requests.serve)
        self._tasks.start_soon(self._tick)
        self._tasks.start_soon(self._look_who_rests)

    def say(self, line: EdgeLogLine) -> None:
        """Send a line for an app's log: some lines a second of each app and code; the others are only counted."""
        said = self._said[line.app, line.code] = self._said.get((line.app, line.code), 0) + 1
        if said <= _LINES_PER_S:
            self._link.say(line)

    def whole(self, message: AllMachines) -> None:
        self._region = self._routes.region = message.region
        self._drain_s = message.drain_s
        self.proxied.believe(message.balancers)
        self.hops.move(self._shard.own_gate(message.gate))
        self._routes.begin(message.addresses, message.app_addresses, message.api_hostname, message.domain)
        self.certificates.show(message.challenges)
        self.more(message.machines)

    def more(self, machines: Iterable[MachineRoute]) -> None:
        for machine in map(self._shard.seen, machines):
            self._routes.put(machine)
            self.gates.update(machine, self._now())
            self.gates.settle(machine.id, self._now())
            self._visits.came(machine.id)

    def ended(self, gone: Iterable[MachineId], certificates: Iterable[SealedCertificate]) -> None:
        for machine_id in gone:
            self._routes.forget(machine_id)
            self.gates.forget(machine_id)
        self._routes.ask_again()
        self.certificates.replace(certificates)
        self._listeners.ask()
        self._visits.look_again()

    def changed(self, machine: MachineRoute) -> None:
        machine = self._shard.seen(machine)
        before = self._routes.machines.get(machine.id)
        if before is not None and before.instance != machine.instance:
            self._drop_kept(machine.id)
        self._routes.put(machine)
        self.gates.update(machine, self._now())
        self._visits.came(machine.id)
        self._listeners.ask()
        self._visits.changed(machine.app)

    def _drop_kept(self, machine_id: MachineId) -> None:
        """Connections to it that rest."""
        self._pool.drop(machine_id)
        self._pool_of_hops.drop(machine_id)

    def gone(self, machine_id: MachineId) -> None:
        self._routes.forget(machine_id)
        self.gates.forget(machine_id)
        self._visits.came(machine_id)
        self._listeners.ask()

    def close(self, message: CloseMachine) -> None:
        gate = self.gates.of.get(message.id)
        if gate is None or not gate.is_near:
            self._link.send(MachineClosed(call=message.call))
            return
        self.spawn(self._close, message)

    async def _close(self, message: CloseMachine) -> None:
        gate, emptied = self.gates.of[message.id], asyncio.Event()
        self._drop_kept(message.id)
        gate.close(message.instance, emptied.set)
        with anyio.move_on_after(message.wait_s):
            await emptied.wait()
        self._link.send(MachineClosed(call=message.call, left=gate.total))

    async def _let_rest(self, wish: RestWish) -> None:
        """From here on nobody comes in, until the worker refuses, or, where it did not answer, says how it is."""
        gate, instance = wish.gate, wish.gate.route.instance
        if instance is None or not gate.is_empty:
            return
        gate.close(instance)
        self._drop_kept(gate.route.id)
        refused = await self._link.rest(gate.route.id, instance, suspend=wish.suspend)
        self.counters.add("rests_refused" if refused else "rests", app=gate.route.app)
        if refused == UNHEARD:
            gate.doubted = instance
        elif refused:
            gate.reopen(instance, self._now())
            self._visits.changed(gate.route.app)

    async def _look_who_rests(self) -> None:
        """One machine of an app at a time: each of two could be spared, and both together not."""
        while not self.leaving:
            await self._clock.sleep(_REST_EVERY_S)
            self._said.clear()
            apps: dict[AppName, list[Gate]] = {}
            for gate in filter(attrgetter("is_near"), self.gates.of.values()):
                apps.setdefault(gate.route.app, []).append(gate)
            for gates in apps.values():
                wish = next(self._rests(gates, self._now()), None)
                if wish is not None:
                    await self._let_rest(wish)
            self._restore(apps)

    def _restore(self, apps: Mapping[AppName, Iterable[Gate]]) -> None:
        """One machine of an app at a time, here too."""
        now, before = self._now(), self._short_since
        wanted = {app: gate for app, gates in apps.items() if (gate := self._restores(gates, now)) is not None}
        self._short_since = {app: before.get(app, now) for app in wanted}
        for app in [app for app, since in self._short_since.items() if now - since >= SHORT_S]:
            del self._short_since[app]
            self._visits.restore(wanted[app])

    def ask(self, message: AskReport) -> None:
        counted = ((machine_id, gate) for machine_id, gate in self.gates.of.items() if gate.total)
        flying = {str(machine_id): gate.total for machine_id, gate in counted if not gate.is_beside}
        self._link.send(
            EdgeReport(
                call=message.call,
                process=self._shard.number,
                bound=tuple(self.bound()),
                counters=dict(self.counters.values),
                held=self.held,
                in_flight=flying,
                apps=self.figures.apps(self._visits.held) if message.apps else (),
                machines=self.figures.machines() if message.apps else (),
            )
        )

    def explain(self, message: AskRoute) -> None:
        """Explain a route, in the process that counts the visits in the app's machines; the others answer with no
        door."""
        mine = self._shard.has(message.app)
        doors = self._explainer.explain(message, self._now()) if mine else ()
        self._link.send(RouteExplained(call=message.call, doors=doors))

    def bound(self) -> Iterator[ListenState]:
        """Each door that has an app, with the reason where the process cannot listen there."""
        for door, refused in sorted(self._listeners.states.items()):
            app = self._routes.first_app(door)
            if app is not None:
                target = self._routes.newest(door, app)
                yield ListenState(
                    address=door.address,
                    port=door.port,
                    app=app,
                    http=target is not None and target.serves_http,
                    tls=target is not None and target.ends_tls,
                    udp=door.udp,
                    owned=self._routes.owner_of(door.address) == app,
                    refused=refused,
                )

    def _host_lost(self, place: GatePlace, until: float) -> None:
        """Who would have gone there tries others."""
        self.gates.avoid_host(place, until)
        self._visits.look_again()

    def _challenge(self, door: Door, host: str, token: str) -> str | None:
        """At an address that one app has alone nothing is answered for another's order: so nobody is given a
        certificate for a name that leads to somebody else."""
        shown = self.certificates.challenge(host, token)
        if shown is None or self._routes.owner_of(door.address) not in (None, shown.app):
            return None
        return shown.answer

    def accept(self, door: Door) -> asyncio.Protocol:
        """The protocol of a new connection, as the app is spoken to that has been there longest: another app can join
        it, and not take its place."""
        app = self._routes.first_app(door)
        target = None if app is None else self._routes.newest(door, app)
        if target is not None and target.ends_tls:
            return self.handshakes.accept(door, postgres=target.speaks_postgres)
        return self._http.accept(door) if target is not None and target.serves_http else self._raw.accept(door)

    def _accept_in_tls(self, door: Door, target: ServiceTarget, alpn: str) -> asyncio.Protocol:
        app = target.machine.app
        if not target.serves_http:
            return self._raw.accept(door, app)
        return self._http.accept(door, tls=app, http2=alpn == "h2")

    async def _tick(self) -> None:
        while True:
            await self._pause()
            self._visits.look_again()
            self._http.check_time()
            self.handshakes.check_time()
            self.proxied.check_time()
            self._pool.sweep()
            self._pool_of_hops.sweep()
            self.hops.sweep()
            self.datagrams.sweep()
            self._hop_dialer.sweep()
            if self.memory.too_long() and len(self._clients) < _FEW:
                self.too_large.set()  # it is nobody's who is here

    async def _pause(self) -> None:
        """Before the next look; while nobody is here and no connection is kept it comes with whoever comes first."""
        self._came.clear()
        if any(map(len, self._timed)):
            await self._clock.sleep(_LOOK_AGAIN_S)
            return
        with anyio.move_on_after(_LOOK_AT_REST_S):
            await self._came.wait()


def is_own(address: str) -> bool:
    """Whether an address is the host's own. Its own clients are not bounded by address: proxies in front of us are
    among them."""
    return address == "::1" or address.startswith("127.")
