"""A host with its edge, which is the real one, of one process or several, and its daemon, of which only what edges hear
is played: the feed, wakes, rests, stops. Of machines of other hosts the daemon learns as a real one does, from the
catalog, whose rows come late.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.auth.node_certificate import identity_of
from hawker.edge.datagram_hops import DatagramGate
from hawker.edge.datagrams import DatagramFlows
from hawker.edge.process import Edge, EdgeParts
from hawker.edge.routes import Door
from hawker.edge.shard import EdgeShard
from hawker.fair.table import EDGE_WAKES
from hawker.feed import (
    AllMachines,
    AppAddress,
    CloseMachine,
    EdgeAnswer,
    EdgeLogLine,
    GatePlace,
    MachineChanged,
    MachineClosed,
    MachineGone,
    MachineRoute,
    RestMachine,
    ToEdge,
    ToWorker,
    WakeMachine,
    process_of,
)
from hawker.fleet.far_routes import FarRoutes
from hawker.fleet.rows import NodeFacts, Row, app_ip_rows, app_row, node_row
from hawker.http.mutual_tls import MutualTls
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.proof.edge_checks import EdgeLedger
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import AppRecord, IpRecord
from hawker.record.node import NodeRecord
from hawker.sim.edge.played_catalog import PlayedCatalog
from hawker.sim.edge.played_machine import HOME, PlayedMachine
from hawker.sim.edge.played_process import EdgeProcess, PlayedFlowGate, PlayedFlows, PlayedLink, open_doors
from hawker.sim.edge.wires import HERE, LIFE, PROCESS, Wires
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import Chance

GATE_PORT = 4291
"""Of the first edge process of a host; of another one its number later."""
_SOON_S, _COMMIT_S = 0.002, 0.05
_CLOSES_S = 5.0
"""How long a stop waits for those who are in there."""
_KEY = b"k" * 32
"""Of the played cluster."""
_NOWHERE = Path("/nonexistent")
_DATAGRAM = 1 << 20
_BEGINS_READING_S = 1.0
_FACTS = NodeFacts(api="", version="", drivers=(), labels={}, started_at=0.0)
_WAKES = replace(EDGE_WAKES, total=3, each=3, reserve=0)
"""A host has few machines here. Of each process, as in the product."""


class EdgeKit(EdgeParts, frozen=True, kw_only=True):
    """What the edges of a run are made of, and what their daemons read the catalog with."""

    far: type[FarRoutes] = FarRoutes
    flows: type[DatagramFlows] = PlayedFlows
    flow_gate: type[DatagramGate] = PlayedFlowGate


class PlayedHost:
    """`told` is called when a machine of this host has changed, and `gate_of` says where another host that is called
    alive lets in for an app; `tasks` outlive edges and daemons."""

    def __init__(
        self,
        number: int,
        wires: Wires,
        ledger: EdgeLedger,
        clock: LoopClock,
        tasks: TaskGroup,
        parts: EdgeKit,
        told: Callable[["PlayedHost"], None],
        gate_of: Callable[[NodeId, AppName], GatePlace | None] = lambda node, app: None,
        region: str = HOME,
    ) -> None:
        self.id = NodeId(f"{number:08x}")
        self.region = wires.regions[self.id] = region
        self.address = f"10.0.0.{number}"
        wires.addresses[self.id] = self.address
        self.machines: dict[MachineId, PlayedMachine] = {}
        self.catalog = PlayedCatalog(clock, self.id, region)
        self.apps: list[AppRecord] = []  # whose home it is
        self.ips: list[tuple[AppName, IpRecord]] = []  # of those apps
        self.private_ips: tuple[str, ...] = ()  # of all apps
        self._far: dict[MachineId, MachineRoute] = {}
        self._addresses: tuple[AppAddress, ...] = ()
        self._reading = anyio.CancelScope()
        self.processes = 1  # of its edge, whether they are there or not
        self.daemon = True
        self.powered = True
        self.lost_at = -inf  # when its power failed
        self.refuses = self.fails = False  # to start machines; so that each has ended before anybody is told of it
        self.leased = False  # so none of its machines may rest
        self.slow_s = 0.0  # a start takes so much longer
        self._wires = wires
        self._ledger = ledger
        self._clock = clock
        self._chance = Chance(clock)
        self._tasks = tasks
        self._told = told
        self._gate_of = gate_of
        papers = identity_of(self.id, [_KEY])
        identity = MutualTls(lambda: papers)
        self._parts = replace(
            parts,
            identity=lambda folder: identity,
            memory=lambda: 0,  # of the simulated process
            wakes=_WAKES,
        )
        self._kept = PlayedLink(clock, self.take, 0)  # by the first process, for the next ones
        self._there: dict[int, EdgeProcess] = {}
        self._ports: tuple[int, ...] = ()
        self.udp_ports: tuple[int, ...] = ()
        self._closing: dict[int, dict[PlayedLink, anyio.Event]] = {}
        self._calls = 0

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Of its processes that are there."""
        return tuple(each.edge for each in self._there.values())

    @property
    def abroad(self) -> int:
        """How many requests its edge has in other regions, flows of datagrams apart."""
        gates = [gate for edge in self.edges for gate in edge.gates.of.values() if gate.route.region]
        return sum(gate.total for gate in gates if gate.route.services[0].protocol != "udp")

    def ready(self, app: str) -> list[tuple[MachineId, int]]:
        """Machines of the app that take whoever comes, with the numbers of their instances."""
        return [
            (each.id, each.number)
            for each in self.machines.values()
            if each.app == app and each.up and each.healthy and not each.cordoned and not each.closed
        ]

    def begun_at(self, process: int) -> float | None:
        """Of the edge process of this number; None where it is not there."""
        found = self._there.get(process)
        return None if found is None else found.begun_at

    def gate_of(self, app: AppName) -> GatePlace:
        """Where other hosts ask for the app's machines."""
        return self._gate(process_of(app, self.processes))

    def _gate(self, process: int) -> GatePlace:
        return GatePlace(node=self.id, host=self.address, port=GATE_PORT + process)

    # The edge.

    async def begin(self, ports: Sequence[int]) -> None:
        """Those of its processes that are not there, with what was known to those before them, until the daemon speaks
        to them."""
        self._ports = tuple(ports)
        kept = self._kept.kept
        for number in range(self.processes):
            if number not in self._there:
                await self._tasks.start(self._live, number, kept)

    def end(self, process: int | None = None) -> None:
        """This process is killed; all of them are with None."""
        for number in [each for each in self._there if process in (None, each)]:
            self._wires.end_process(self.id, number)
            self._end_edge(number)

    def _end_edge(self, number: int) -> None:
        process = self._there.pop(number)
        process.scope.cancel()
        for address, port in self._places(number):
            self._wires.unlisten(address, port, number)

    def _places(self, number: int) -> list[tuple[str, int]]:
        shard = self._shard(number)
        public = [(self.address, port) for port in (GATE_PORT + number, *self._ports)]
        private = [(self.zoned(ip), port) for ip in self.private_ips for port in self._ports]
        return [*public, *private] if shard.socket is None else [*public, *private, (str(shard.socket), 0)]

    def zoned(self, ip: str) -> str:
        """A private address as it is here: each host has it."""
        return f"{ip}%{self.id}"

    def admits(self, network: int, ip: str) -> bool:
        """Whether its packet filter lets a machine of this network ask at a private address."""
        return any(each.ip == ip and each.network_id == network for each in self._addresses if each.is_private)

    def _shard(self, number: int) -> EdgeShard:
        folder = Path("/hosts", self.id)
        return replace(self._parts.shard, number=number, processes=self.processes, folder=folder)

    async def _live(self, number: int, kept: AllMachines, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        HERE.set(self.id)
        PROCESS.set(number)
        LIFE.set(self._wires.deaths(self.id, number))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (ours, theirs):
            end.setblocking(False)
        asyncio.get_running_loop().add_reader(ours, ours.recv, _DATAGRAM)  # there is no warden
        link, shard = PlayedLink(self._clock, self.take, number), self._shard(number)
        parts = replace(self._parts, link=lambda folder, clock: link, shard=shard)
        if not number:
            self._kept = link
        with ours, theirs, anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                edge = Edge(_NOWHERE, theirs, self._clock, tasks, parts)
                self._there[number] = EdgeProcess(edge, link, self._clock.monotonic(), scope)
                link.tell(kept, edge)
                edge.watch()
                self._wires.listen(self.id, self.address, GATE_PORT + number, edge.hops.accept, number)
                places = [(self.address, self.address), *((ip, self.zoned(ip)) for ip in self.private_ips)]
                for port in self._ports:
                    for ip, place in places:
                        accept = partial(edge.proxied.accept, Door(ip, port))
                        self._wires.listen(self.id, place, port, accept, number)
                open_doors(edge, self._wires, (self.id, number, self.address), self.udp_ports)
                if shard.socket is not None:
                    self._wires.listen(self.id, str(shard.socket), 0, edge.hops.accept_neighbor, number)
                task_status.started()
                if self.daemon:
                    self._say_to(link, self._whole())
                try:
                    await anyio.sleep_forever()
                finally:
                    asyncio.get_running_loop().remove_reader(ours)

    # The daemon, as its edge hears it.

    def tell(self, machine: PlayedMachine) -> None:
        """A machine of this host has changed."""
        self._say(MachineChanged(machine=machine.route()))
        self._told(self)

    def rows(self) -> Iterator[Row]:
        """All that it says of itself in the catalog."""
        yield node_row(NodeRecord(id=self.id, region=self.region, created_at=0.0), _FACTS)
        for app in self.apps:
            yield app_row(self.id, app)
        for name, ip in self.ips:
            yield from app_ip_rows(self.id, name, ip)
        for machine in self.machines.values():
            yield from machine.rows()

    def begin_daemon(self) -> None:
        """From now on it reads the catalog."""
        self._tasks.start_soon(self._read_catalog)

    async def _read_catalog(self) -> None:
        with anyio.CancelScope() as self._reading:
            await self._clock.sleep(self._clock.random() * _BEGINS_READING_S)
            networks = {each.network for each in self.machines.values()}
            far_routes = self._parts.far(
                self.id,
                self.region,
                self.catalog,
                self._gate_of,
                lambda: True,
                lambda: networks,
                self._tell_far,
                self._clock,
                lambda other: 2 * self._wires.latency(self.id, other),
            )
            await far_routes.serve()

    def _tell_far(self, routes: Sequence[MachineRoute], addresses: Sequence[AppAddress]) -> None:
        """All machines of others that this daemon knows of now, and all addresses of apps."""
        before, self._far = self._far, {each.id: each for each in routes}
        if tuple(addresses) != self._addresses:
            self._addresses = tuple(addresses)
            self._say(self._whole())
            return
        for machine_id in [*self._far, *(each for each in before if each not in self._far)]:
            route = self._far.get(machine_id)
            if route != before.get(machine_id):
                self._say(MachineGone(id=machine_id) if route is None else MachineChanged(machine=route))

    def away(self) -> None:
        """The daemon is killed."""
        self.daemon = False
        self._reading.cancel()
        self._lose_links()
        for events in self._closing.values():
            for event in events.values():
                event.set()

    def back(self) -> None:
        self.daemon = True
        self._say(self._whole())
        self.begin_daemon()

    def _lose_links(self) -> None:
        for process in self._there.values():
            process.link.waking.clear()
            process.link.lose()

    def take(self, message: ToWorker, link: PlayedLink) -> bool:
        """What an edge process says; whether the daemon is there to hear it."""
        if not (self.daemon and self.powered):
            return False
        match message:
            case WakeMachine():
                self._tasks.start_soon(self._wake, message, link)
            case RestMachine():
                self._tasks.start_soon(self._rest, message, link)
            case MachineClosed():
                self._closing.get(message.call, {}).get(link, anyio.Event()).set()
            case EdgeLogLine() | _:
                pass
        return True

    def _whole(self) -> AllMachines:
        near = tuple(machine.route() for machine in self.machines.values())
        return AllMachines(
            machines=(*near, *self._far.values()),
            addresses=(self.address,),
            app_addresses=self._addresses,
            region=self.region,
            gate=self._gate(0),
        )

    def _say(self, message: ToEdge) -> None:
        """To all of its processes."""
        for process in self._there.values():
            self._say_to(process.link, message)

    def _say_to(self, link: PlayedLink, message: ToEdge) -> None:
        """It takes a moment, and order is kept."""
        if self.daemon and self.powered:
            self._tasks.start_soon(self._deliver, message, link)

    async def _deliver(self, message: ToEdge, link: PlayedLink) -> None:
        await self._clock.sleep(_SOON_S)
        process = self._there.get(link.number)
        if process is not None and link is process.link and self.powered:
            HERE.set(self.id)
            PROCESS.set(link.number)
            LIFE.set(self._wires.deaths(self.id, link.number))
            link.tell(message, process.edge)

    # What its worker does with machines.

    async def _wake(self, message: WakeMachine, link: PlayedLink) -> None:
        machine = self.machines[message.id]
        why = "no room" if self.refuses and not self.fails else ""
        if not why and machine.state not in (State.STOPPED, State.SUSPENDED, State.STARTED, State.STARTING):
            why = f"it is {machine.state}"
        self._say_to(link, EdgeAnswer(call=message.call, refused=why))
        if self.fails:
            self.tell(machine)
        elif not why:
            self._count_wake(machine, link)
            await self.start(machine)

    def _count_wake(self, machine: PlayedMachine, link: PlayedLink) -> None:
        there = self.machines
        link.waking = {
            each: start
            for each, start in link.waking.items()
            if there[each].state is State.STARTING and there[each].starts == start
        }
        if machine.state in (State.STOPPED, State.SUSPENDED):
            link.waking[machine.id] = machine.starts + 1
        self._ledger.wakes(self.id, len(link.waking), _WAKES.total)

    async def _rest(self, message: RestMachine, link: PlayedLink) -> None:
        machine = self.machines[message.id]
        await self._clock.sleep(_COMMIT_S * self._clock.random())
        if not machine.up or machine.route().instance != message.instance or self.leased:
            why = "somebody has a lease" if self.leased else f"it is {machine.state}, or another instance"
            self._say_to(link, EdgeAnswer(call=message.call, refused=why))
            return
        self._ledger.rests(machine.id)
        machine.closed = machine.rested = True
        machine.state = State.SUSPENDING if message.suspend else State.STOPPING
        self._say_to(link, EdgeAnswer(call=message.call))
        self.tell(machine)
        await self._end_in(machine, 0.05, State.SUSPENDED if message.suspend else State.STOPPED)

    async def start(self, machine: PlayedMachine) -> None:
        if machine.state not in (State.STOPPED, State.SUSPENDED):
            return
        machine.starts += 1
        machine.state, machine.closed, machine.rested = State.STARTING, False, False
        self.tell(machine)
        await self._clock.sleep(0.02 + 0.1 * self._clock.random() + self.slow_s)
        if machine.state is State.STARTING and self.powered:
            self._up(machine)
            await self._clock.sleep(0.1 * self._clock.random())  # the program takes a while to listen
            if machine.up:
                machine.listen(self._wires, self._ledger)

    async def stop(self, machine: PlayedMachine) -> None:
        """By a user: nobody new is let in, and those who are in there have some time."""
        if not machine.up:
            return
        instance, number = machine.route().instance, machine.number
        assert instance is not None, "it runs"
        machine.state = State.STOPPING  # committed before its edge is asked, so an edge that begins then knows
        await self._clock.sleep(_COMMIT_S * self._clock.random())
        self.tell(machine)
        await self._close(machine.id, instance)
        if machine.state is State.STOPPING and machine.number == number and self.powered:
            await self._end_in(machine, 0.05, State.STOPPED)

    async def crash(self, machine: PlayedMachine, after_s: float) -> None:
        """Its program ends by itself, and is started again."""
        if machine.up:
            machine.state = State.STOPPED
            machine.end(self._wires, self._ledger)
            await self._clock.sleep(after_s)  # nobody knows yet
            self.tell(machine)
            machine.restarts += machine.state is State.STOPPED
            await self.start(machine)

    async def power_on(self, ports: Sequence[int]) -> None:
        """Everything that ran is started again."""
        self._wires.power_on(self.id)
        self.powered = self.daemon = True
        self.lost_at = -inf
        await self.begin(ports)
        self.begin_daemon()
        for machine in self.machines.values():
            if machine.state in (State.STARTED, State.STARTING, State.STOPPING, State.SUSPENDING):
                was_up, machine.state = machine.state in (State.STARTED, State.STARTING), State.STOPPED
                if was_up:
                    self._tasks.start_soon(self.start, machine)
            self.tell(machine)

    def power_off(self) -> None:
        self.powered = self.daemon = False
        self.lost_at = self._clock.monotonic()
        self._reading.cancel()
        self._wires.power_off(self.id)
        self._lose_links()
        for number in list(self._there):
            self._end_edge(number)
        for machine in self.machines.values():
            machine.connections.clear()
            machine.end(self._wires, self._ledger)

    def _up(self, machine: PlayedMachine) -> None:
        machine.state, machine.number, machine.closed, machine.rested = State.STARTED, machine.number + 1, False, False
        self.tell(machine)

    async def _end_in(self, machine: PlayedMachine, seconds: float, state: State) -> None:
        await self._clock.sleep(seconds)
        if machine.state in (State.STOPPING, State.SUSPENDING):
            machine.state = state
            machine.end(self._wires, self._ledger)
            self.tell(machine)

    async def _close(self, machine_id: MachineId, instance: InstanceId) -> None:
        if not (self._there and self.daemon):
            return
        self._calls += 1
        call = self._calls
        events = self._closing[call] = {process.link: anyio.Event() for process in self._there.values()}
        self._say(CloseMachine(call=call, id=machine_id, instance=instance, wait_s=_CLOSES_S))
        with anyio.move_on_after(_CLOSES_S + 1):
            for event in events.values():
                await event.wait()
            if self.daemon and self._there:
                self.machines[machine_id].closed = True
        del self._closing[call]


def left_in(host: PlayedHost) -> Iterator[Violation]:
    """What its edge still has in the end."""
    for edge in host.edges:
        if len(edge.datagrams):
            yield Violation(Invariant.LEFT_EMPTY, host.id, f"has {len(edge.datagrams)} flows")
        for gate in edge.gates.of.values():
            if gate.total:
                yield Violation(Invariant.LEFT_EMPTY, host.id, f"counts {gate.total} in {gate.route.id}")
        if edge.held or edge.kept.total:
            held = f"holds {edge.held} requests and keeps {edge.kept.total} bytes"
            yield Violation(Invariant.LEFT_EMPTY, host.id, held)
        if edge.counters.values.get("mistakes"):
            yield Violation(Invariant.ANSWERS, host.id, f"made {edge.counters.values['mistakes']} mistakes")
