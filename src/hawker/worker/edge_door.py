"""The worker's end of `edge.sock`: it starts the host's edge when a machine needs it, feeds it the routes of its own
machines, and starts, stops and suspends machines for it. The records are the truth; the edge holds no other.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from math import inf
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ByteStream, SocketListener, TaskGroup

from hawker.clock import Clock
from hawker.config import PUBLISH
from hawker.config.effective import SERVICE_CHECK
from hawker.errors import HawkerError
from hawker.feed import (
    API_APP,
    API_SOCKET,
    CERTIFICATE_KEY,
    EVERYWHERE,
    LEAVE_S,
    NODE_IDENTITY,
    PROCESSES,
    WORKER_SOCKET,
    AllMachines,
    AppAddress,
    EdgeAnswer,
    EdgeLogLine,
    EdgeReport,
    GatePlace,
    MachineChanged,
    MachineClosed,
    MachineGone,
    MachineRoute,
    RestMachine,
    RouteHealth,
    SealedCertificate,
    ToWorker,
    WakeMachine,
    WorkerInbox,
    api_route,
    in_parts,
)
from hawker.host.local_socket import listen_at
from hawker.host.own_user import show_to
from hawker.ids import AppName, InstanceId, MachineId, new_ulid
from hawker.log import bind
from hawker.logs.line import PROXY, KeptLine
from hawker.logs.machine_logs import MachineLogs
from hawker.machine import GONE, State
from hawker.record.app import APPS, IPS, IpRecord
from hawker.record.machine import MACHINES, CheckResult, MachineRecord, MachineTarget, networks_here, rests
from hawker.route_question import RouteExplained
from hawker.secret.certificates import Certificates
from hawker.settings import EVERY_ADDRESS
from hawker.store.contract import Reader, keys_of
from hawker.value_object import ValueObject
from hawker.worker.changes import Changes
from hawker.worker.edge_line import EdgeLine, EdgeLink, Unsaid
from hawker.worker.operations import Operations
from hawker.worker.table import all_machines

IDLE = "hawker_idle_s"
_SHORTEST_IDLE_S, _LONGEST_IDLE_S = 10.0, 86_400.0
_SOURCE = "edge"
_LINE_CHARS = 2000
_READ_BYTES = 1 << 18
_OTHERS_WITHIN_S = 2.0
_KEYS_EVERY_S, _ADDRESSES_EVERY_S, _SETTLES_S = 5.0, 1.0, 0.005
_INTRODUCED_WITHIN_S = 0.2
_LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
_log = bind("hawker.edge")


class EdgeHost(ValueObject, frozen=True, kw_only=True):
    """`folder` is where the edge lives, and `user` who serves there, None for us; `addresses` where machines may
    publish ports, none where they may not; `own`: machines have addresses of their own. After `idle_s` that nobody
    needs a machine it may rest. `balancers` are networks that introduce their clients. `drain_s`: so long may those
    stay who are in machines when the edge process is replaced. So many `processes` serve. `api_hostname` leads to the
    node's API, `domain` is the platform's own; empty: none. `region` is the node's."""

    folder: Path
    addresses: tuple[str, ...]
    region: str
    own: bool
    idle_s: float
    user: int | None = None
    balancers: tuple[str, ...] = ()
    drain_s: float = LEAVE_S
    processes: int = 1
    api_hostname: str = ""
    domain: str = ""


class EdgeDoor:
    """`health_of` are the results of a machine's checks."""

    def __init__(
        self,
        store: Reader,
        changes: Changes,
        health_of: Callable[[MachineRecord], Sequence[CheckResult]],
        operations: Operations,
        line: EdgeLine,
        certificates: Certificates,
        logs: MachineLogs | None,
        clock: Clock,
        host: EdgeHost,
    ) -> None:
        self._store = store
        self._health_of = health_of
        self._operations = operations
        self._line = line
        self._certificates = certificates
        self._logs = logs
        self._clock = clock
        self._host = host
        self._api = api_route(InstanceId(new_ulid(clock))) if host.api_hostname else None
        self._resting = 0
        self._gate: GatePlace | None = None
        self._identity: Callable[[], str] | None = None
        self._far: dict[MachineId, MachineRoute] = {}
        self._others_by = -inf  # until when those of other nodes are waited for, before an edge is told of any
        self._app_addresses: tuple[AppAddress, ...] = ()
        self._addressed: frozenset[AppName] = frozenset()
        self._hear_addresses: list[Callable[[Sequence[AppAddress]], None]] = []
        self._first = Unsaid()
        self._unsaid = [self._first]  # one for each process of the edge
        changes.listen(self._note)
        certificates.listen(self._retell)

    def join(self, gate: GatePlace, identity: Callable[[], str]) -> None:
        """The node is in a cluster: edges of others come in at `gate`. `identity` is the PEM that they know it by."""
        self._gate, self._identity = gate, identity
        self._others_by = self._clock.monotonic() + _OTHERS_WITHIN_S

    def tell_far(self, routes: Sequence[MachineRoute], addresses: Sequence[AppAddress]) -> None:
        """The machines of other nodes that are reached from outside, and the addresses of all apps of the fleet, as
        they are now: all of them."""
        self._others_by = -inf
        self._tell_addresses(addresses)
        far = {route.id: route for route in routes}
        for machine_id in far.keys() | self._far.keys():
            if far.get(machine_id) != self._far.get(machine_id):
                self._note(machine_id)
        self._far = far

    def listen_addresses(self, hear: Callable[[Sequence[AppAddress]], None]) -> None:
        """`hear` is told of all addresses of apps whenever they change."""
        self._hear_addresses.append(hear)

    async def watch_addresses(self) -> None:
        """Tells the edge the addresses of apps again and again, on a node alone; until cancelled."""
        while self._gate is None:
            networks = networks_here(self._store)
            given = sorted(self._store.scan(IPS), key=lambda each: each[1].created_at)
            addresses = (_app_address(*each) for each in given)
            self._tell_addresses([each for each in addresses if not each.is_private or each.network_id in networks])
            await self._clock.sleep(_ADDRESSES_EVERY_S)

    def _tell_addresses(self, all_of_them: Sequence[AppAddress]) -> None:
        """Private ones are nobody's where machines have the host's network."""
        addresses = tuple(each for each in all_of_them if self._host.own or not each.is_private)
        if addresses != self._app_addresses:
            self._app_addresses = addresses
            for hear in self._hear_addresses:
                hear(addresses)
            self._addressed = frozenset(each.app for each in addresses)
            self._retell()

    @property
    def private_addresses(self) -> Mapping[int, frozenset[str]]:
        """The private addresses of apps that machines of this host may ask for, by network."""
        found: dict[int, set[str]] = {}
        for each in self._app_addresses:
            if each.is_private:
                found.setdefault(each.network_id, set()).add(each.ip)
        return {network_id: frozenset(ips) for network_id, ips in found.items()}

    @property
    def api_socket(self) -> tuple[Path, int | None] | None:
        """The path of the socket to which the edge brings calls of the node's API, and the edge's user; None where the
        edge takes none."""
        return (self._host.folder / API_SOCKET, self._host.user) if self._api is not None else None

    @property
    def serves_far(self) -> bool:
        """Whether machines of other nodes are published here, too."""
        return bool(self._host.addresses)

    async def needed(self) -> None:
        """Returns once a machine, or the node's API, has something that the edge serves."""
        if self._api is not None:
            return
        unsaid = self._first
        unsaid.retell()
        while True:
            whole, noted = unsaid.take()
            records = (self._store.get(MACHINES, machine_id) for machine_id in noted)
            if self._far or any(record is not None and self._is_served(record) for record in records):
                return
            if whole and any([self._is_served(record) async for record in all_machines(self._store)]):
                return
            await unsaid.wait()

    def _is_served(self, record: MachineRecord) -> bool:
        """Here, or by the gate for others."""
        if not record.config.services:
            return False
        asked = (record.config.metadata or {}).get(PUBLISH, "")
        if published_at(asked, self._host.addresses):
            return True
        return record.app in self._addressed or (self._gate is not None and asked == EVERYWHERE)

    async def serve(self) -> None:
        """Answer the edge, whose processes may come and go. Until cancelled."""
        self._unsaid.clear()
        listener = await SocketListener.from_socket(listen_at(self._host.folder / WORKER_SOCKET, self._host.user))
        async with listener, anyio.create_task_group() as tasks:
            while True:
                stream = await listener.accept()
                tasks.start_soon(self._converse, stream)

    async def _converse(self, stream: ByteStream) -> None:
        inbox = WorkerInbox()
        async with stream, anyio.create_task_group() as tasks:
            first = await self._first_words(stream, inbox)
            await self._settled()
            link, unsaid = self._line.connected(stream), Unsaid()
            link.hears_parts = any(isinstance(each, EdgeReport) and each.hears_parts for each in first)
            self._unsaid.append(unsaid)
            try:
                await self._tell_all(link)
                tasks.start_soon(self._feed, link, unsaid)
                for message in first:
                    self._hear(message, link, tasks)
                await self._listen(stream, inbox, link, tasks)
            finally:
                self._unsaid.remove(unsaid)
                self._line.lost(link)
                tasks.cancel_scope.cancel()

    async def _first_words(self, stream: ByteStream, inbox: WorkerInbox) -> list[ToWorker]:
        """A process says at once what it hears; an older one says nothing."""
        with anyio.move_on_after(_INTRODUCED_WITHIN_S), suppress(ValueError, *_LOST):
            return inbox.read(await stream.receive(_READ_BYTES))
        return []

    async def _listen(self, stream: ByteStream, inbox: WorkerInbox, link: EdgeLink, tasks: TaskGroup) -> None:
        try:
            while True:
                for message in inbox.read(await stream.receive(_READ_BYTES)):
                    self._hear(message, link, tasks)
        except ValueError as error:
            _log.error("the edge is not understood", extra={"reason": str(error)})
        except _LOST:
            return

    def _hear(self, message: ToWorker, link: EdgeLink, tasks: TaskGroup) -> None:
        match message:
            case WakeMachine():
                tasks.start_soon(self._start, message, link)
            case RestMachine():
                tasks.start_soon(self._rest, message, link)
            case MachineClosed() | EdgeReport() | RouteExplained():
                self._line.hear(message, link)
            case EdgeLogLine():
                _log.warning("not served", extra={"app": message.app, "code": message.code, "text": message.text})
                self._say(message)

    async def _feed(self, link: EdgeLink, unsaid: Unsaid) -> None:
        """Certificates change rarely, so everything is told again."""
        while True:
            whole, noted = unsaid.take()
            if whole:
                await self._tell_all(link)
            else:
                await link.send(*self._news(noted))
            await unsaid.wait()

    async def _tell_all(self, link: EdgeLink) -> None:
        if not link.hears_parts:
            await link.send(self.whole())
            return
        near = [record.id async for record in all_machines(self._store) if _has_route(record)]
        for part in in_parts(self._beginning(), self._machines(near), self._sealed()):
            await link.send(part)

    def _news(self, noted: Iterable[MachineId]) -> Iterator[MachineChanged | MachineGone]:
        for machine_id in noted:
            record = self._store.get(MACHINES, machine_id)
            if record is None or record.state in GONE:
                far = self._far.get(machine_id)
                yield MachineGone(id=machine_id) if far is None else MachineChanged(machine=far)
            elif record.config.services:
                yield MachineChanged(machine=self._route(record))

    def whole(self) -> AllMachines:
        """The state with which a connection begins, in one message."""
        machines, sealed = tuple(self._machines(map(MachineId, keys_of(self._store, MACHINES)))), tuple(self._sealed())
        return msgspec.structs.replace(self._beginning(), machines=machines, certificates=sealed)

    def _beginning(self) -> AllMachines:
        return AllMachines(
            machines=(),
            addresses=self._host.addresses,
            region=self._host.region,
            app_addresses=self._app_addresses,
            gate=self._gate,
            challenges=self._certificates.shown_challenges,
            balancers=self._host.balancers,
            drain_s=self._host.drain_s,
            api_hostname=self._host.api_hostname,
            domain=self._host.domain,
        )

    def _machines(self, near: Iterable[MachineId]) -> Iterator[MachineRoute]:
        """Each as it is when it is asked for: what changes meanwhile is told after all of them."""
        if self._api is not None:
            yield self._api
        for machine_id in dict.fromkeys((*near, *self._far)):
            record = self._store.get(MACHINES, machine_id)
            route = self._far.get(machine_id) if record is None or not _has_route(record) else self._route(record)
            if route is not None:
                yield route

    def _sealed(self) -> Iterator[SealedCertificate]:
        for each in self._certificates.served().values():
            yield SealedCertificate(hostname=each.hostname, app=each.app, sealed=each.sealed, not_after=each.not_after)

    def _say(self, told: EdgeLogLine) -> None:
        """In the app's own log, too, as a word of its proxy. The node's API has none."""
        if told.app == API_APP:
            return
        text, at = f"{told.code} {told.text}"[:_LINE_CHARS], int(self._clock.now() * 1e9)
        line = KeptLine(at=at, machine=told.machine or "", stream=0, text=text, level="error", provider=PROXY)
        if self._logs is not None:
            self._logs.say(told.app, line)

    async def keep_keys(self) -> None:
        """The cluster's keys may change. Until cancelled."""
        while self._identity is not None:
            await self._clock.sleep(_KEYS_EVERY_S)
            self.give_keys()

    def give_keys(self) -> None:
        """Gives the edge the key that opens certificates, the identity with which it speaks to other hosts' edges, and
        no other secret. A disk that is full costs the certificates of a node that never had any."""
        self._give(CERTIFICATE_KEY, self._certificates.key)
        if self._identity is not None:
            self._give(NODE_IDENTITY, self._identity().encode())

    def order_processes(self) -> None:
        """Writes how many edge processes serve, from the next beginning of the edge on."""
        place, processes = self._host.folder / PROCESSES, self._host.processes
        if processes == 1:
            place.unlink(missing_ok=True)
        else:
            place.write_text(f"{processes}\n")

    def _give(self, name: str, key: bytes) -> None:
        place = self._host.folder / name
        if place.is_file() and place.read_bytes() == key:
            show_to(self._host.user, place)
            return
        draft = place.with_suffix(".new")
        try:
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(key)
            show_to(self._host.user, draft)
            draft.rename(place)
        except OSError as error:
            _log.warning("the edge lacks a key", extra={"key": name, "reason": error.strerror})

    async def _start(self, message: WakeMachine, link: EdgeLink) -> None:
        record = self._store.get(MACHINES, message.id)
        if record is None:
            await link.send(EdgeAnswer(call=message.call, refused="the machine is gone"))
            return
        target = MachineTarget(record.app, record.id, None)
        try:
            await self._operations.start(target, source=_SOURCE, rested=message.rested)
        except HawkerError as error:
            await link.send(EdgeAnswer(call=message.call, refused=str(error)))
        else:
            await link.send(EdgeAnswer(call=message.call))

    async def _settled(self) -> None:
        """Returns when nothing is under way that an edge before this one has asked for: what is told begins with what
        came of it, and a machine that is about to rest is not told as one that runs. And once those of other nodes have
        been read, or after a while: an edge that outlived a daemon forgets what the next one does not tell."""
        while self._resting or self._clock.monotonic() < self._others_by:
            await self._clock.sleep(_SETTLES_S)

    async def _rest(self, message: RestMachine, link: EdgeLink) -> None:
        self._resting += 1
        try:
            with anyio.CancelScope(shield=True):  # what is being written is written, whether the edge is there or not
                await self._operations.rest(message.id, message.instance, suspend=message.suspend)
        except HawkerError as error:
            await link.send(EdgeAnswer(call=message.call, refused=str(error)))
        else:
            await link.send(EdgeAnswer(call=message.call))
        finally:
            self._resting -= 1

    def _route(self, record: MachineRecord) -> MachineRoute:
        running = record.running
        up = record.state is State.STARTED and running is not None and running.exit is None
        app = self._store.get(APPS, record.app)
        return MachineRoute(
            id=record.id,
            app=record.app,
            state=record.state,
            version=record.version,
            instance=running.instance_id if up and running is not None else None,
            hosts=hosts_of(record, own=self._host.own),
            services=record.config.services or (),
            health=self._health(record) if up else RouteHealth.PASSING,
            cordoned=record.cordoned,
            publish=published_at((record.config.metadata or {}).get(PUBLISH, ""), self._host.addresses),
            autostart=autostarts(record),
            idle_s=idle_s(record, self._host.idle_s),
            started_at=(running.started_at if running is not None else None) or 0.0,
            created_at=record.created_at,
            rested=rests(record),
            network=app.network_id if app is not None else 0,
            org=app.org if app is not None else "",
        )

    def _health(self, record: MachineRecord) -> RouteHealth:
        """Plain checks of the machine route nothing."""
        ready = {name for name, check in (record.config.checks or {}).items() if check.kind == "readiness"}
        results = self._health_of(record)
        return worst([each for each in results if each.name in ready or each.name.startswith(SERVICE_CHECK)])

    def _note(self, machine_id: MachineId) -> None:
        for each in self._unsaid:
            each.note(machine_id)

    def _retell(self) -> None:
        for each in self._unsaid:
            each.retell()


def _has_route(record: MachineRecord) -> bool:
    return bool(record.config.services) and record.state not in GONE


def _app_address(key: str, record: IpRecord) -> AppAddress:
    return AppAddress(app=AppName(key.partition("/")[0]), ip=record.ip, shared=record.shared)


def hosts_of(record: MachineRecord, *, own: bool) -> tuple[str, ...]:
    """The addresses at which a machine is reached from its host; `own` says that machines have addresses of their own.
    IPv4 comes first: apps are told to listen on 0.0.0.0."""
    if not own:
        return ("127.0.0.1", "::1")
    return (*([record.network.ipv4] if record.network.ipv4 else ()), record.network.private_ip)


def worst(results: Sequence[CheckResult]) -> RouteHealth:
    states = {result.status for result in results}
    if "critical" in states:
        return RouteHealth.CRITICAL
    return RouteHealth.UNASKED if "warning" in states else RouteHealth.PASSING


def autostarts(record: MachineRecord) -> bool:
    """Whether a request may start it. Where services differ, one that may is enough. Absent means yes."""
    if record.config.disable_machine_autostart:
        return False
    return any(service.autostart is not False for service in record.config.services or ())


def idle_s(record: MachineRecord, default: float) -> float:
    """Metadata says it for one machine, in seconds; what is no number in its range says nothing."""
    try:
        given = float((record.config.metadata or {}).get(IDLE, default))
    except ValueError:
        return default
    return given if given == default or _SHORTEST_IDLE_S <= given <= _LONGEST_IDLE_S else default


def published_at(asked: str, addresses: tuple[str, ...]) -> str:
    """The address at which a machine's ports are published, of those that are allowed; empty for nowhere."""
    if not asked or not addresses:
        return ""
    if asked == EVERYWHERE or asked in addresses:
        return asked
    try:
        wanted = ip_address(asked)
    except ValueError:
        return ""
    return str(wanted) if EVERY_ADDRESS[wanted.version == 6] in addresses else ""
