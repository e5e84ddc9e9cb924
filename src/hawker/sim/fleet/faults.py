"""What is done to a simulated fleet, as the operations say: faults of daemons and hosts, of the network and of clocks,
and what its operator does.
"""

from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup

from hawker.api.contract.cluster import CORDON_NODE, DRAIN_NODE, FORGET_NODE, UNCORDON_NODE, ForgetQuery, NodeParams
from hawker.api.contract.market import FILL
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import MachineId, NodeId
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import APPS
from hawker.record.machine import MACHINES
from hawker.sim.fleet.client import FleetLedger, told_of
from hawker.sim.fleet.cluster import SimCluster, address_of
from hawker.sim.fleet.host import FleetHost
from hawker.sim.fleet.network import CallNetwork, NetworkCut, PassingCall, SimCaller
from hawker.sim.fleet.plan import APART, OPERATOR, WATCHED, FleetOperation, FleetVerb
from hawker.sim.harness.plan import do_in_turn
from hawker.sim.harness.trace import Speaker

_AGAIN_S = 2.0


class FleetFaults:
    """`tasks` is where lives run, and all that lasts."""

    def __init__(self, cluster: SimCluster, hosts: Sequence[FleetHost], ledger: FleetLedger, tasks: TaskGroup) -> None:
        self._cluster, self._hosts, self._ledger, self._tasks = cluster, hosts, ledger, tasks
        self._clock = cluster.call_network.clock
        self._calls_left = 0
        self._at_call: FleetOperation | None = None
        self._resting = anyio.Event()
        self._away: set[FleetHost] = set()
        self.blows = 0
        cluster.call_network.hears = self._hear

    async def rage(self, operations: tuple[FleetOperation, ...], began: float) -> None:
        await do_in_turn(operations, self._clock, self._strike, began)

    async def rest(self) -> None:
        """All is healed, and everybody is up."""
        self._resting.set()
        self._at_call = None
        call_network = self._cluster.call_network
        call_network.cuts.clear()
        self._recut()
        call_network.late.clear()
        call_network.lost = call_network.mute = self._cluster.network.loss = 0.0
        for host in self._hosts:
            self._slow(host, 0.0)
        while self._away:
            await self._clock.sleep(_AGAIN_S)

    async def _strike(self, operation: FleetOperation) -> None:
        self.blows += 1
        nodes = self._chosen(operation)
        if not nodes:
            return
        hosts = [self._hosts[number] for number in nodes]
        match operation.verb:
            case FleetVerb.KILL | FleetVerb.POWER | FleetVerb.UPGRADE:
                self._fell(hosts[0], operation)
            case FleetVerb.KILL_AT_CALL:
                self._at_call, self._calls_left = operation, int(operation.amount)
            case FleetVerb.LATE:
                self._say(operation, f"the next {operation.amount:g} orders are late")
                self._cluster.call_network.late = [FILL.name] * int(operation.amount)
            case FleetVerb.CUT:
                rest = [host for number, host in enumerate(self._hosts) if number not in set(nodes)]
                self._tasks.start_soon(self._cut, operation, NetworkCut(_ids(hosts), _ids(rest)))
            case FleetVerb.ONE_WAY:
                self._tasks.start_soon(self._cut, operation, NetworkCut(_ids(hosts[:1]), _ids(hosts[-1:]), both=False))
            case FleetVerb.LOSS:
                self._tasks.start_soon(self._lose, operation)
            case FleetVerb.SLOW:
                self._tasks.start_soon(self._slow_for, operation, hosts[0])
            case _:
                self._say(operation, f"the wall clock of {hosts[0].id} jumps by {operation.amount:g} s")
                hosts[0].place.clock.ahead_s += operation.amount

    def _chosen(self, operation: FleetOperation) -> tuple[int, ...]:
        """Numbers of nodes; those of operations that hit all are of no matter."""
        if operation.word not in (WATCHED, APART):
            return operation.nodes or (0,)
        watched, spares = self._ledger.spares()
        if operation.word == WATCHED:
            return self._with(watched)
        first, second = (*(self._with(spare) for spare in spares[:2]), (), ())[:2]
        there = {*first, *second, *self._with(watched)}
        rest = [number for number in range(len(self._hosts)) if number not in there]
        return (*first, *rest[::2]) if first and first != second else ()

    def _with(self, machine: MachineId | None) -> tuple[int, ...]:
        """Who has it."""
        return tuple(
            number
            for number, host in enumerate(self._hosts)
            if machine is not None and host.place.store.get(MACHINES, machine) is not None
        )

    # Lives.

    def _fell(self, host: FleetHost, operation: FleetOperation) -> None:
        if host in self._away or host.node is None:
            return
        self._away.add(host)
        if operation.verb is not FleetVerb.UPGRADE:
            host.fall(
                kept=operation.amount if operation.verb is FleetVerb.POWER else 1.0,
                power=operation.verb is FleetVerb.POWER,
            )
        self._tasks.start_soon(self._away_for, host, operation)

    async def _away_for(self, host: FleetHost, operation: FleetOperation) -> None:
        self._say(operation, f"{operation.verb} of {host.id}, for {operation.for_s:g} s")
        off = operation.verb is FleetVerb.POWER
        if operation.verb is FleetVerb.UPGRADE:
            await host.stop()
        if off:
            self._cluster.call_network.unplugged.add(host.id)
        await host.ended.wait()
        with anyio.move_on_after(operation.for_s):
            await self._resting.wait()
        self._cluster.call_network.unplugged.discard(host.id)
        await host.begin(self._tasks)
        self._say(operation, f"{host.id} is up, in its life {host.lives}")
        self._away.discard(host)

    def _hear(self, passing: PassingCall) -> None:
        """Is told of each call: at the chosen one, one of its two ends dies."""
        operation = self._at_call
        if operation is None or passing.route != FILL.name:
            return
        whom, when = operation.word.split()
        if passing.before != (when == "before"):
            return
        self._calls_left -= 1
        if self._calls_left > 0:
            return
        self._at_call = None
        dead = passing.sender if whom == "sender" else passing.receiver
        self._fell(next(host for host in self._hosts if host.id == dead), operation)

    # The network.

    async def _cut(self, operation: FleetOperation, cut: NetworkCut) -> None:
        way = "from the others" if cut.both else f"on the way to {', '.join(sorted(cut.those))}"
        self._say(operation, f"{', '.join(sorted(cut.these))} cut off {way} for {operation.for_s:g} s")
        cuts = self._cluster.call_network.cuts
        cuts.append(cut)
        self._recut()
        await self._clock.sleep(operation.for_s)
        if not self._resting.is_set():
            cuts.remove(cut)
            self._recut()

    def _recut(self) -> None:
        """Where gossip goes, too."""
        network = self._cluster.network
        network.heal()
        for cut in self._cluster.call_network.cuts if self._cluster.shared_catalog is None else ():
            for one in cut.these:
                for other in cut.those:
                    network.cut(address_of(one), address_of(other))
                    if cut.both:
                        network.cut(address_of(other), address_of(one))

    async def _lose(self, operation: FleetOperation) -> None:
        self._say(operation, f"{operation.amount:.0%} of {operation.word} are lost for {operation.for_s:g} s")
        call_network, share = self._cluster.call_network, operation.amount
        call_network.lost = share if operation.word in ("requests", "all") else 0.0
        call_network.mute = share if operation.word in ("answers", "all") else 0.0
        self._cluster.network.loss = share if operation.word == "all" else 0.0
        with anyio.move_on_after(operation.for_s):
            await self._resting.wait()
        call_network.lost = call_network.mute = self._cluster.network.loss = 0.0

    async def _slow_for(self, operation: FleetOperation, host: FleetHost) -> None:
        self._say(operation, f"{host.id} is slow by {operation.amount:g} s for {operation.for_s:g} s")
        self._slow(host, operation.amount)
        with anyio.move_on_after(operation.for_s):
            await self._resting.wait()
        self._slow(host, 0.0)

    def _slow(self, host: FleetHost, seconds: float) -> None:
        self._cluster.call_network.slow[host.id] = seconds
        self._cluster.network.slow(address_of(host.id), seconds)

    def _say(self, operation: FleetOperation, text: str) -> None:
        self._ledger.say(Speaker.NATURE, f"{operation.number}. {text}")


def _ids(hosts: Sequence[FleetHost]) -> frozenset[NodeId]:
    return frozenset(host.id for host in hosts)


# The operator of a simulated fleet: cordons nodes, begins to drain them, and has those forgotten that are away.

_ROUTES = {FleetVerb.CORDON: CORDON_NODE, FleetVerb.DRAIN: DRAIN_NODE, FleetVerb.UNCORDON: UNCORDON_NODE}
_PATIENCE_S = 12.0


class Operator:
    """What a node had when its cordon was answered is all that it may have until somebody asks to end that."""

    name = OPERATOR

    def __init__(
        self, call_network: CallNetwork, hosts: Sequence[FleetHost], ledger: FleetLedger, clock: Clock
    ) -> None:
        self._call_network, self._hosts, self._ledger, self._clock = call_network, hosts, ledger, clock

    async def work(self, operations: tuple[FleetOperation, ...], began: float) -> None:
        await do_in_turn(operations, self._clock, self._do, began)
        self.look()

    async def _do(self, operation: FleetOperation) -> None:
        broker, host = self._hosts[operation.nodes[0]], self._hosts[operation.nodes[-1]]
        if operation.verb is FleetVerb.FORGET:
            gone = next((each for each in self._hosts if each.node is None and _is_empty(each)), None)
            if gone is None:
                return
            host = gone
        if operation.verb is FleetVerb.UNCORDON:
            self.look()
            self._ledger.cordoned.pop(host.id, None)
        self._say(operation, f"{operation.verb} {host.id}")
        try:
            await self._call(broker, host, operation.verb)
        except HawkerError as error:
            return self._say(operation, f"{operation.verb} {host.id}: {told_of(error)}")
        self._say(operation, f"{operation.verb} {host.id}: done")
        if operation.verb in (FleetVerb.CORDON, FleetVerb.DRAIN):
            self._ledger.cordoned.setdefault(host.id, _machines(host))

    def look(self) -> None:
        """At all that are cordoned now."""
        for host in self._hosts:
            there = self._ledger.cordoned.get(host.id)
            new = _machines(host) - there if there is not None else frozenset()
            for machine in sorted(new):
                self._ledger.find([Violation(Invariant.CORDONED, host.id, f"it took {machine}")])

    async def _call(self, broker: FleetHost, host: FleetHost, verb: FleetVerb) -> None:
        caller, params = SimCaller(self._call_network, None, broker.id, self.name), NodeParams(node_id=host.id)
        if verb is FleetVerb.FORGET:
            await caller.call(FORGET_NODE, params=params, query=ForgetQuery(), timeout_s=_PATIENCE_S)
        else:
            await caller.call(_ROUTES[verb], params=params, timeout_s=_PATIENCE_S)
        self._ledger.operations += 1

    def _say(self, operation: FleetOperation, text: str) -> None:
        self._ledger.say(Speaker.CLIENT, f"{operation.number}. {self.name}: {text}")


def _is_empty(host: FleetHost) -> bool:
    """Who forgets a node says that it never comes back: what it has, and claims of apps at home there, may be made
    again elsewhere."""
    store = host.place.store
    return not _machines(host) and next(iter(store.scan(APPS)), None) is None


def _machines(host: FleetHost) -> frozenset[MachineId]:
    """Also while it is down."""
    return frozenset(record.id for _, record in host.place.store.scan(MACHINES))
