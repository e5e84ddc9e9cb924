"""The operator of a simulated fleet: cordons nodes, begins to drain them, and has those forgotten that are away."""

from collections.abc import Sequence

from hawker.api.contract.cluster import CORDON_NODE, DRAIN_NODE, FORGET_NODE, UNCORDON_NODE, ForgetQuery, NodeParams
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import APPS
from hawker.record.machine import MACHINES
from hawker.sim.fleet.client import told_of
from hawker.sim.fleet.host import FleetHost
from hawker.sim.fleet.ledger import FleetLedger
from hawker.sim.fleet.network import CallNetwork, SimCaller
from hawker.sim.fleet.plan import OPERATOR, FleetOperation, FleetVerb
from hawker.sim.harness.plan import do_in_turn
from hawker.sim.harness.trace import Speaker

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
