"""The operator of a simulated fleet: cordons nodes, begins to drain them, and has those forgotten that are away."""

from collections.abc import Sequence

from hawker.api.routes.cluster import CORDON_NODE, DRAIN_NODE, FORGET_NODE, UNCORDON_NODE, ForgetQuery, NodeParams
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.host import FleetHost
from hawker.sim.fleet.ledger import FleetLedger
from hawker.sim.fleet.network import CallNetwork, SimCaller
from hawker.sim.fleet.operation import OPERATOR, FleetOperation, FleetVerb
from hawker.sim.harness.trace import Speaker
from hawker.worker.records import APPS, MACHINES

_ROUTES = {FleetVerb.CORDON: CORDON_NODE, FleetVerb.DRAIN: DRAIN_NODE, FleetVerb.UNCORDON: UNCORDON_NODE}
_PATIENCE_S = 12.0


class Operator:
    """What a node had when its cordon was answered is all that it may have until somebody asks to end that."""

    name = OPERATOR

    def __init__(self, wire: CallNetwork, hosts: Sequence[FleetHost], ledger: FleetLedger, clock: Clock) -> None:
        self._wire, self._hosts, self._ledger, self._clock = wire, hosts, ledger, clock

    async def work(self, deeds: tuple[FleetOperation, ...], began: float) -> None:
        for deed in deeds:
            await self._clock.sleep(max(0.0, began + deed.at - self._clock.monotonic()))
            await self._do(deed)
        self.look()

    async def _do(self, deed: FleetOperation) -> None:
        broker, host = self._hosts[deed.nodes[0]], self._hosts[deed.nodes[-1]]
        if deed.verb is FleetVerb.FORGET:
            gone = next((each for each in self._hosts if each.node is None and _is_empty(each)), None)
            if gone is None:
                return
            host = gone
        if deed.verb is FleetVerb.UNCORDON:
            self.look()
            self._ledger.cordoned.pop(host.id, None)
        self._say(deed, f"{deed.verb} {host.id}")
        try:
            await self._call(broker, host, deed.verb)
        except HawkerError as error:
            return self._say(deed, f"{deed.verb} {host.id}: {type(error).__name__}: {error}")
        self._say(deed, f"{deed.verb} {host.id}: done")
        if deed.verb in (FleetVerb.CORDON, FleetVerb.DRAIN):
            self._ledger.cordoned.setdefault(host.id, _machines(host))

    def look(self) -> None:
        """At all that are cordoned now."""
        for host in self._hosts:
            there = self._ledger.cordoned.get(host.id)
            new = _machines(host) - there if there is not None else frozenset()
            for machine in sorted(new):
                self._ledger.find(Violation(Invariant.CORDONED, host.id, f"it took {machine}"))

    async def _call(self, broker: FleetHost, host: FleetHost, verb: FleetVerb) -> None:
        caller, params = SimCaller(self._wire, None, broker.id, self.name), NodeParams(node_id=host.id)
        if verb is FleetVerb.FORGET:
            await caller.call(FORGET_NODE, params=params, query=ForgetQuery(), timeout_s=_PATIENCE_S)
        else:
            await caller.call(_ROUTES[verb], params=params, timeout_s=_PATIENCE_S)
        self._ledger.operations += 1

    def _say(self, deed: FleetOperation, text: str) -> None:
        self._ledger.say(Speaker.CLIENT, f"{deed.number}. {self.name}: {text}")


def _is_empty(host: FleetHost) -> bool:
    """Who forgets a node says that it never comes back: what it has, and claims of apps at home there, may be made
    again elsewhere."""
    store = host.place.store
    return not _machines(host) and next(iter(store.scan(APPS)), None) is None


def _machines(host: FleetHost) -> frozenset[MachineId]:
    """Also while it is down."""
    return frozenset(record.id for _, record in host.place.store.scan(MACHINES))
