"""A host with its edge, which is the real one, and its daemon, of which only what edges hear is played: the feed,
wakes, rests, stops. What edges of other hosts hear of its machines comes late.
"""

import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.auth.node_certificate import identity_of
from hawker.clock import Clock
from hawker.edge.process import Edge, EdgeParts
from hawker.edge.routes import Door
from hawker.edge.worker_link import WorkerLink
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
)
from hawker.http.mutual_tls import MutualTls
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.proof.edge_checks import EdgeLedger
from hawker.sim.edge.played_machine import PlayedMachine
from hawker.sim.edge.wires import HERE, Wires
from hawker.sim.harness.plan import Chance

_GATE_PORT = 4291
_SOON_S, _COMMIT_S = 0.002, 0.05
_CLOSES_S = 5.0
"""How long a stop waits for those who are in there."""
_KEY = b"k" * 32
"""Of the played cluster."""
_NOWHERE = Path("/nonexistent")
_SHARED = "198.51.100.1"
_WAKES = replace(EDGE_WAKES, total=3, each=3, reserve=0)
"""A host has few machines here."""


class PlayedLink(WorkerLink):
    """The edge's end of a played `edge.sock`."""

    def __init__(self, clock: Clock, host: "PlayedHost") -> None:
        super().__init__(_NOWHERE, clock)
        self._host = host

    def send(self, message: ToWorker) -> bool:
        return self._host.take(message)

    def tell(self, message: ToEdge, edge: Edge) -> None:
        self._hear(message, edge)

    def lose(self) -> None:
        """The daemon is gone."""
        self._hang_up()

    @property
    def kept(self) -> AllMachines:
        """What a new edge process begins with."""
        return msgspec.structs.replace(self._last, machines=tuple(self._known.values()))


class PlayedHost:
    """`told` is called when a machine of this host has changed; `tasks` outlive edges and daemons."""

    def __init__(
        self,
        number: int,
        wires: Wires,
        ledger: EdgeLedger,
        clock: Clock,
        tasks: TaskGroup,
        parts: EdgeParts,
        told: Callable[[PlayedMachine], None],
    ) -> None:
        self.id = NodeId(f"{number:08x}")
        self.address = f"10.0.0.{number}"
        wires.addresses[self.id] = self.address
        self.machines: dict[MachineId, PlayedMachine] = {}
        self.far: dict[MachineId, MachineRoute] = {}
        self.edge: Edge | None = None
        self.daemon = True
        self.powered = True
        self.begun_at = 0.0  # of the edge that is there
        self.refuses = False  # to start machines
        self.leased = False  # so none of its machines may rest
        self.slow_s = 0.0  # a start takes so much longer
        self._wires = wires
        self._ledger = ledger
        self._clock = clock
        self._chance = Chance(clock)
        self._tasks = tasks
        self._told = told
        papers = identity_of(self.id, [_KEY])
        identity = MutualTls(lambda: papers)
        self._parts = replace(
            parts,
            link=lambda folder, clock: self._link_of(clock),
            identity=lambda folder: identity,
            memory=lambda: 0,  # of the simulated process
            wakes=_WAKES,
        )
        self._link = PlayedLink(clock, self)
        self._scope: anyio.CancelScope | None = None
        self._ports: tuple[int, ...] = ()
        self._closing: dict[int, anyio.Event] = {}
        self._calls = 0
        self._waking: set[MachineId] = set()  # that this edge has asked this daemon for

    @property
    def gate(self) -> GatePlace:
        return GatePlace(node=self.id, host=self.address, port=_GATE_PORT)

    def _link_of(self, clock: Clock) -> WorkerLink:
        self._link = PlayedLink(clock, self)
        return self._link

    # The edge.

    async def begin(self, ports: Sequence[int]) -> None:
        """With what the edge before it knew, until the daemon speaks to it."""
        self._ports = tuple(ports)
        await self._tasks.start(self._live, ports, self._link.kept)

    def end(self) -> None:
        """Its process is killed."""
        self._waking.clear()
        self._wires.end_process(self.id, self.address)
        self._end_edge()

    def _end_edge(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        self._scope = self.edge = None
        for port in (_GATE_PORT, *self._ports):
            self._wires.unlisten(self.address, port)

    async def _live(self, ports: Sequence[int], kept: AllMachines, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        HERE.set(self.id)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        theirs.setblocking(False)
        with ours, theirs, anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                edge = Edge(_NOWHERE, theirs, self._clock, tasks, self._parts)
                self.edge, self.begun_at = edge, self._clock.monotonic()
                self._link.tell(kept, edge)
                edge.watch()
                self._wires.listen(self.id, self.address, _GATE_PORT, edge.hops.accept)
                for port in ports:
                    self._wires.listen(self.id, self.address, port, partial(edge.accept, Door(self.address, port)))
                task_status.started()
                if self.daemon:
                    self._say(self._whole())
                await anyio.sleep_forever()

    # The daemon, as its edge hears it.

    def tell(self, machine: PlayedMachine) -> None:
        """A machine of this host has changed."""
        self._say(MachineChanged(machine=machine.route()))
        self._told(machine)

    def tell_far(self, routes: Iterable[MachineRoute]) -> None:
        """All machines of others that this daemon knows of now."""
        far = {each.id: each for each in routes}
        for machine_id in [*far, *(each for each in self.far if each not in far)]:
            if far.get(machine_id) != self.far.get(machine_id):
                route = far.get(machine_id)
                self._say(MachineGone(id=machine_id) if route is None else MachineChanged(machine=route))
        self.far = far

    def away(self) -> None:
        """The daemon is killed."""
        self._waking.clear()
        self.daemon = False
        self._link.lose()
        for event in self._closing.values():
            event.set()

    def back(self) -> None:
        self.daemon = True
        self._say(self._whole())

    def take(self, message: ToWorker) -> bool:
        """What the edge says; whether the daemon is there to hear it."""
        if not (self.daemon and self.powered):
            return False
        match message:
            case WakeMachine():
                self._tasks.start_soon(self._wake, message)
            case RestMachine():
                self._tasks.start_soon(self._rest, message)
            case MachineClosed():
                self._closing.get(message.call, anyio.Event()).set()
            case EdgeLogLine() | _:
                pass
        return True

    def _whole(self) -> AllMachines:
        near = tuple(machine.route() for machine in self.machines.values())
        return AllMachines(
            machines=(*near, *self.far.values()),
            addresses=(self.address,),
            app_addresses=(AppAddress(app=AppName("named"), ip=_SHARED, shared=True),),
            region="mad",
            gate=self.gate,
        )

    def _say(self, message: ToEdge) -> None:
        """It takes a moment, and order is kept."""
        if self.daemon and self.powered:
            self._tasks.start_soon(self._deliver, message, self._link)

    async def _deliver(self, message: ToEdge, link: PlayedLink) -> None:
        await self._clock.sleep(_SOON_S)
        if self.edge is not None and link is self._link and self.powered:
            HERE.set(self.id)
            link.tell(message, self.edge)

    # What its worker does with machines.

    async def _wake(self, message: WakeMachine) -> None:
        machine = self.machines[message.id]
        why = "no room" if self.refuses else ""
        if not why and machine.state not in (State.STOPPED, State.SUSPENDED, State.STARTED, State.STARTING):
            why = f"it is {machine.state}"
        self._say(EdgeAnswer(call=message.call, refused=why))
        if not why:
            self._count_wake(machine)
            await self.start(machine)

    def _count_wake(self, machine: PlayedMachine) -> None:
        self._waking = {each for each in self._waking if self.machines[each].state is State.STARTING}
        if machine.state in (State.STOPPED, State.SUSPENDED):
            self._waking.add(machine.id)
        self._ledger.wakes(self.id, len(self._waking), _WAKES.total)

    async def _rest(self, message: RestMachine) -> None:
        machine = self.machines[message.id]
        await self._clock.sleep(_COMMIT_S * self._clock.random())
        if not machine.up or machine.route().instance != message.instance or self.leased:
            why = "somebody has a lease" if self.leased else f"it is {machine.state}, or another instance"
            self._say(EdgeAnswer(call=message.call, refused=why))
            return
        self._ledger.rests(machine.id)
        machine.closed = machine.rested = True
        machine.state = State.SUSPENDING if message.suspend else State.STOPPING
        self._say(EdgeAnswer(call=message.call))
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
        instance = machine.route().instance
        assert instance is not None, "it runs"
        await self._close(machine.id, instance)
        await self._clock.sleep(_COMMIT_S * self._clock.random())
        if machine.up and machine.route().instance == instance and self.powered:
            machine.state = State.STOPPING
            self.tell(machine)
            await self._end_in(machine, 0.05, State.STOPPED)

    async def crash(self, machine: PlayedMachine, after_s: float) -> None:
        """Its program ends by itself, and is started again."""
        if machine.up:
            machine.state = State.STOPPED
            machine.end(self._wires, self._ledger)
            await self._clock.sleep(after_s)  # nobody knows yet
            self.tell(machine)
            await self.start(machine)

    async def power_on(self, ports: Sequence[int]) -> None:
        """Everything that ran is started again."""
        self._wires.power_on(self.id)
        self.powered = self.daemon = True
        await self.begin(ports)
        for machine in self.machines.values():
            if machine.state in (State.STARTED, State.STARTING, State.STOPPING, State.SUSPENDING):
                was_up, machine.state = machine.state in (State.STARTED, State.STARTING), State.STOPPED
                if was_up:
                    self._tasks.start_soon(self.start, machine)
            self.tell(machine)

    def power_off(self) -> None:
        self.powered = self.daemon = False
        self._wires.power_off(self.id)
        self._link.lose()
        self._end_edge()
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
        if self.edge is None or not self.daemon:
            return
        self._calls += 1
        call, event = self._calls, anyio.Event()
        self._closing[call] = event
        self._say(CloseMachine(call=call, id=machine_id, instance=instance, wait_s=_CLOSES_S))
        with anyio.move_on_after(_CLOSES_S + 1):
            await event.wait()
            if self.daemon and self.edge is not None:
                self.machines[machine_id].closed = True
        del self._closing[call]
