"""A trial of a real fleet: orders come in while packets are lost, the network is parted, daemons are killed and a host
loses its power. Then everything must come to rest, and keep what was promised.

Hosts are network namespaces and machines real ones. For root; all of it is gone at the end.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.to_thread import run_sync

from hawker.api.contract.machine import Machine
from hawker.chaos.fleet.clients import ORDER, FleetClients, ToldOrders, clients_of
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet, LabNode
from hawker.chaos.fleet.report import TimedMoment, TrialPhase, TrialReport, phase_of
from hawker.chaos.scenario_context import SampleMachines, write_commandless_image
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.gossip.contract import Fate
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.proof.fleet import Held, NodeSeen, Started, fleet_at_rest
from hawker.value_object import ValueObject

WITHIN_S = 120.0
_LOOK_S = 0.1
_ROOM = ("--cpus", "64", "--memory-mib", "65536")  # that machines of a trial only seem to take
_AT_ONCE = 8


class TrialPlan(ValueObject, frozen=True, kw_only=True):
    """`orders` in each quiet phase; while the network is parted, each side gets one a second for `partition_s`. `flags`
    are further ones of every node."""

    nodes: int = 8
    """How many there are, 3 or more."""
    orders: int = 24
    loss_percent: int = 20
    """Of packets, in the phase with a bad network."""
    partition_s: float = 60.0
    where: Path | None = None
    flags: tuple[str, ...] = ()


async def run_trial(plan: TrialPlan, clock: Clock, tell: Callable[[str], None]) -> TrialReport:
    """`tell` is given a line whenever something begins or was reached."""
    with TemporaryDirectory(dir=plan.where) as made:
        directory = Path(made)
        for name in ("street", "nodes", "image"):
            (directory / name).mkdir()
        samples = SampleMachines("container", write_commandless_image(directory / "image"), directory / "archive")
        with NetworkLab(directory / "street", plan.nodes) as lab:
            fleet = LabFleet(lab, directory / "nodes", clock, *_ROOM, *plan.flags, driver="container")
            with fleet:
                async with clients_of(fleet, clock, samples.sample()) as clients:
                    trial = FleetTrial(plan, clock, tell, fleet, clients)
                    await trial.run()
    findings = (*trial.findings, *(f"left on the host: {trace}" for trace in fleet.left))
    return TrialReport(nodes=plan.nodes, phases=tuple(trial.phases), moments=tuple(trial.moments), findings=findings)


class FleetTrial:
    def __init__(
        self, plan: TrialPlan, clock: Clock, tell: Callable[[str], None], fleet: LabFleet, clients: FleetClients
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._fleet = fleet
        self._lab = fleet.lab
        self._clients = clients
        self._all = range(plan.nodes)
        self.phases: list[TrialPhase] = []
        self.moments: list[TimedMoment] = []
        self.findings: list[str] = []

    async def run(self) -> None:
        try:
            await self._until("every node knows every other one", self._everybody_is_here)
            await self._clients.open()
            await self._until("every node knows the app", self._everybody_knows_the_app)
            await self._orders("quiet")
            await self._lossy()
            await self._parted()
            await self._killed()
            await self._without_power()
            await self._until("every replica has the same rows", self._converged)
        except (HawkerError, TimeoutError) as error:
            self.findings.append(f"the trial could not go on: {error}")
        self.findings += await self._judged()

    # What is done to it.

    async def _lossy(self) -> None:
        hosts = self._lab.hosts
        for host in hosts:
            await run_sync(partial(host.drop_from, hosts, percent=self._plan.loss_percent))
        await self._orders(f"{self._plan.loss_percent}% of packets lost")
        await run_sync(self._lab.heal)

    async def _parted(self) -> None:
        """A smaller and a larger side; both get orders. Every fifth is the same at both and has a key, so that only the
        side with the app's home can fill it."""
        hosts, cut = self._lab.hosts, (self._plan.nodes - 1) // 2
        await run_sync(self._lab.part, hosts[:cut], hosts[cut:])
        self._tell(f"parted: {cut} and {self._plan.nodes - cut} nodes, for {self._plan.partition_s:g} s")
        smaller, larger, until = ToldOrders(), ToldOrders(), self._clock.monotonic() + self._plan.partition_s
        number = 0
        async with anyio.create_task_group() as tasks:
            while self._clock.monotonic() < until:
                number += 1
                shared = number % 5 == 0
                for side, told, first, size in (("a", smaller, 0, cut), ("b", larger, cut, self._plan.nodes - cut)):
                    name = f"parted {number} {'both' if shared else side}"
                    broker = first + number % size
                    tasks.start_soon(partial(self._clients.order, broker, name, told, keyed=shared))
                await self._clock.sleep(1.0)
        self._note(f"parted, the side of {cut}", smaller)
        self._note(f"parted, the side of {self._plan.nodes - cut}", larger)
        await run_sync(self._lab.heal)
        await self._until("every node knows every other one, after the partition", self._everybody_is_here)
        await self._until("every replica has the same rows, after the partition", self._converged)

    async def _killed(self) -> None:
        """Two daemons, with their machines going on."""
        for stall in self._fleet.stalls[1:3]:
            await run_sync(stall.crash)
        await self._orders("two daemons killed", brokers=[each for each in self._all if each not in (1, 2)])
        for stall in self._fleet.stalls[1:3]:
            await run_sync(stall.restart)
        await self._until("every node knows every other one, after the kills", self._everybody_is_here)

    async def _without_power(self) -> None:
        """The host of a machine that has a spare."""
        watched = await self._clients.create(0, "watched")
        await self._until("the watched machine runs", lambda: self._is(watched.id, State.STARTED))
        await self._until("every replica has the watched machine", lambda: self._is_published(watched.id))
        spare = await self._clients.create(0, "spare", standbys=(watched.id,))
        await self._until("the spare is prepared", lambda: self._is(spare.id, State.STOPPED))
        await self._until("every replica has the spare", lambda: self._is_published(spare.id))
        lost = await self._host_of(watched.id)
        if lost is await self._host_of(spare.id):
            self.findings.append("the spare is on the host of what it stands by for")
        broker = next(number for number in self._all if self._fleet.stalls[number] is not lost)
        await run_sync(lost.power_off)
        self._tell(f"host {lost.host.number} has no power")
        await self._until("the lost host is down", lambda: self._is_believed(broker, lost.id, Fate.DOWN))
        await self._until("its spare runs", lambda: self._is(spare.id, State.STARTED, broker))
        await run_sync(lost.power_on)
        await self._until("the lost host is back", self._everybody_is_here)
        await self._until("its machine has given way", lambda: self._is(watched.id, State.STOPPED, broker))

    # Orders.

    async def _orders(self, name: str, brokers: Sequence[int] | None = None) -> None:
        """So many, a few at once, each by another broker."""
        told, turns = ToldOrders(), anyio.CapacityLimiter(_AT_ONCE)
        at = brokers or self._all

        async def order(number: int) -> None:
            async with turns:
                await self._clients.order(at[number % len(at)], f"{name} {number}", told)

        async with anyio.create_task_group() as tasks:
            for number in range(self._plan.orders):
                tasks.start_soon(order, number)
        self._note(name, told)

    def _note(self, name: str, told: ToldOrders) -> None:
        phase = phase_of(name, told.answers)
        self.phases.append(phase)
        self._tell(f"orders, {name}: {phase.filled} of {len(told.answers)} filled")

    # What is seen.

    async def _until(self, what: str, seen: Callable[[], Awaitable[bool]]) -> None:
        """Raises `TimeoutError`."""
        began = self._clock.monotonic()
        with anyio.move_on_after(WITHIN_S):
            while not await self._quietly(seen):
                await self._clock.sleep(_LOOK_S)
            moment = TimedMoment(what=what, seconds=round(self._clock.monotonic() - began, 2))
            self.moments.append(moment)
            self._tell(f"{what}, after {moment.seconds:g} s")
            return
        raise TimeoutError(f"not seen within {WITHIN_S:g} s: {what}")

    async def _quietly(self, seen: Callable[[], Awaitable[bool]]) -> bool:
        """A node that cannot answer now is asked again."""
        try:
            return await seen()
        except HawkerError:
            return False

    async def _everybody_is_here(self) -> bool:
        for broker in self._all:
            nodes = await self._clients.nodes(broker)
            if len(nodes) != self._plan.nodes or any(node.state != Fate.ALIVE for node in nodes):
                return False
        return True

    async def _everybody_knows_the_app(self) -> bool:
        return all([await self._clients.knows_the_app(broker) for broker in self._all])

    async def _converged(self) -> bool:
        return len({await self._clients.replica(broker) for broker in self._all}) == 1

    async def _is_published(self, machine_id: str) -> bool:
        replicas = [await self._clients.replica(broker) for broker in self._all]
        return all(any(row[0] == "machine" and row[2] == machine_id for row in rows) for rows in replicas)

    async def _is(self, machine_id: str, state: State, broker: int = 0) -> bool:
        return (await self._clients.machine(broker, machine_id)).state is state

    async def _is_believed(self, broker: int, node_id: NodeId, fate: Fate) -> bool:
        return any(node.id == node_id and node.state == fate for node in await self._clients.nodes(broker))

    async def _host_of(self, machine_id: str) -> LabNode:
        owner = next(
            row[1] for row in await self._clients.replica(0) if row[:1] == ("machine",) and row[2] == machine_id
        )
        return next(stall for stall in self._fleet.stalls if stall.id == owner)

    # The end.

    async def _judged(self) -> list[str]:
        try:
            nodes = [await self._seen(broker) for broker in self._all]
            machines = await self._clients.machines(0)
            rows = await self._clients.replica(0)
        except HawkerError as error:
            return [f"a node cannot be asked in the end: {error}"]
        held = tuple(Held(id=MachineId(each.id), order=_order_of(each)) for each in machines)
        nodes.append(NodeSeen(node=NodeId("all"), capacity=_ENDLESS, machines=held))
        return list(map(str, fleet_at_rest(nodes, self._clients.promised, list(_started(rows)))))

    async def _seen(self, broker: int) -> NodeSeen:
        info, rows = await self._clients.info(broker), await self._clients.replica(broker)
        capacity = Capacity(
            cpus=info.capacity.cpus,
            memory_mib=info.capacity.memory_mb,
            disk_mib=info.capacity.disk_mb,
            shared_ratio=info.capacity.shared_cpu_ratio,
        )
        used = Resources(
            shared_cpus=info.used.shared_cpus,
            performance_cpus=info.used.performance_cpus,
            memory_mib=info.used.memory_mb,
            disk_mib=info.used.disk_mb,
        )
        return NodeSeen(node=NodeId(info.id), capacity=capacity, machines=(), used=used, rows=rows)


_ENDLESS = Capacity(cpus=1 << 30, memory_mib=1 << 40, disk_mib=1 << 40)


def _order_of(machine: Machine) -> str | None:
    return ((machine.config.metadata if machine.config else None) or {}).get(ORDER)


def _started(rows: Iterable[tuple[object, ...]]) -> Iterator[Started]:
    for kind, _, machine, spare, seen in rows:
        if kind == "takeover":
            yield Started(spare=MachineId(str(spare)), machine=MachineId(str(machine)), seen=float(str(seen)))
