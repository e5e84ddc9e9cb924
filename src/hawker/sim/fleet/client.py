"""A client of a simulated fleet: calls brokers as their contract says, and minds what it is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hawker.api.bodies import CreateAppRequest, CreateMachineRequest, Machine, StopRequest
from hawker.api.loss import Unreachable
from hawker.api.routes import (
    CREATE_APP,
    CREATE_MACHINE,
    DELETE_MACHINE,
    START_MACHINE,
    STOP_MACHINE,
    AppParams,
    DeleteMachineQuery,
)
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NameTaken, NoRoom, NotFound, OrderUncertain, Unavailable
from hawker.ids import MachineId, NodeId
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.ledger import FleetLedger, Ordered
from hawker.sim.fleet.network import CallNetwork, SimCaller
from hawker.sim.fleet.operation import FleetOperation, FleetVerb
from hawker.sim.harness.trace import Speaker
from hawker.sim.node.sim_worker import config_of, params

PATIENCE_S = 12.0
_PAUSE_S = 0.3
_ORDER = "order"


@dataclass(frozen=True, slots=True)
class _Answer:
    """`sure`: nothing was done."""

    machine: Machine | None = None
    error: HawkerError | None = None
    sure: bool = False


class FleetClient:
    """`is_new`: the host of the machine is down, or came up a moment ago. A broker that does not know so yet, nor that
    the machine is there, says "not found"."""

    def __init__(
        self,
        name: str,
        wire: CallNetwork,
        nodes: list[NodeId],
        ledger: FleetLedger,
        clock: Clock,
        is_new: Callable[[MachineId], bool] = lambda machine_id: False,
    ) -> None:
        self.name, self._wire, self._nodes, self._is_new = name, wire, nodes, is_new
        self._ledger, self._clock = ledger, clock
        self.app = f"app-{name}"

    async def begin(self, at: int) -> None:
        """Its app, with that node as its home."""
        while True:
            try:
                await self._call(at, CREATE_APP, body=CreateAppRequest(name=self.app, idempotency_key=self.app))
            except NameTaken:
                return
            except HawkerError:
                await self._clock.sleep(_PAUSE_S)
            else:
                return

    async def work(self, deeds: tuple[FleetOperation, ...], began: float) -> None:
        for deed in deeds:
            await self._clock.sleep(max(0.0, began + deed.at - self._clock.monotonic()))
            await self._do(deed)

    async def _do(self, deed: FleetOperation) -> None:
        match deed.verb:
            case FleetVerb.ORDER:
                await self._order(deed, f"key of {deed.label}" if deed.word else None)
            case FleetVerb.SPARE:
                watched = self._ledger.orders.get(deed.word)
                if watched is not None and watched.machine is not None:
                    await self._order(deed, f"key of {deed.label}", watches=watched.machine)
            case FleetVerb.AGAIN:
                order = self._ledger.orders.get(deed.label)
                if order is not None and order.key is not None and not order.destroyed:
                    await self._place(deed, order)
            case _:
                order = self._ledger.orders.get(deed.label)
                if order is not None and order.machine is not None:
                    await self._change(deed, order, order.machine)

    # Orders.

    async def _order(self, deed: FleetOperation, key: str | None, watches: MachineId | None = None) -> None:
        order = Ordered(deed.label, self.app, key, watches)
        self._ledger.orders[deed.label] = order
        await self._place(deed, order)

    async def _place(self, deed: FleetOperation, order: Ordered) -> None:
        """For the first time, or as a client does that has lost the answer."""
        self._say(deed, f"{deed.verb} {order.label}{f' with key {order.key!r}' if order.key else ''}")
        memory = int(deed.amount) or 256
        spare = {"standbys": [order.watches]} if order.watches else {}
        extra = {**spare, **self._extra(deed)}
        made = config_of(metadata={_ORDER: order.label}, guest={"memory_mb": memory}, **extra)
        body = CreateMachineRequest(config=made, skip_launch=bool(spare))
        for broker in deed.nodes:
            answer = await self._send(broker, order, body)
            if answer.machine is not None:
                self._told(deed, order, answer.machine)
                return
            self._say(deed, f"{order.label}: {type(answer.error).__name__}: {answer.error}")
            if isinstance(answer.error, OrderUncertain):
                order.key = answer.error.order
            elif isinstance(answer.error, NoRoom) or (order.key is None and not answer.sure):
                return  # it is full; or nobody can tell, and nothing may be asked twice
            await self._clock.sleep(_PAUSE_S)

    def _extra(self, deed: FleetOperation) -> dict[str, object]:
        """What else the config of an order has."""
        return {}

    async def _send(self, broker: int, order: Ordered, body: CreateMachineRequest) -> _Answer:
        try:
            here = AppParams(app_name=self.app)
            return _Answer(await self._call(broker, CREATE_MACHINE, params=here, body=body, idempotency_key=order.key))
        except HawkerError as error:
            doubtful = isinstance(error, Fault | DeadlineExceeded)
            return _Answer(error=error, sure=isinstance(error, Unreachable | Unavailable) or not doubtful)

    def _told(self, deed: FleetOperation, order: Ordered, machine: Machine) -> None:
        self._say(deed, f"{order.label} is {machine.id}")
        known, order.machine = order.machine, MachineId(machine.id)
        self._ledger.filled += known is None
        if known is not None and known != machine.id and not order.destroyed:
            what = f"it was answered with {known}, and then with {machine.id}"
            self._ledger.find(Violation(Invariant.FILLED_ONCE, order.label, what))

    # Changes.

    async def _change(self, deed: FleetOperation, order: Ordered, machine_id: MachineId) -> None:
        self._say(deed, f"{deed.verb} {order.label}, {machine_id}")
        target, broker = params(machine_id, self.app), deed.nodes[0]
        gone, order.destroyed = order.destroyed, order.destroyed or deed.verb is FleetVerb.DESTROY
        try:
            if deed.verb is FleetVerb.DESTROY:
                await self._call(broker, DELETE_MACHINE, params=target, query=DeleteMachineQuery(force=True))
            elif deed.verb is FleetVerb.STOP:
                await self._call(broker, STOP_MACHINE, params=target, body=StopRequest())
            else:
                await self._call(broker, START_MACHINE, params=target)
        except HawkerError as error:
            self._say(deed, f"{deed.verb} {order.label}: {type(error).__name__}: {error}")
            if isinstance(error, NotFound) and not gone and not self._is_new(machine_id):
                what = f"the answer to {order.label}; a broker says: {error}"
                self._ledger.find(Violation(Invariant.KEPT, machine_id, what))
        else:
            self._say(deed, f"{deed.verb} {order.label}: done")

    async def _call(self, broker: int, route: Any, **given: Any) -> Any:
        caller = SimCaller(self._wire, None, self._nodes[broker], self.name)
        try:
            answer = await caller.call(route, timeout_s=PATIENCE_S, **given)
        except Unreachable:
            self._ledger.lost += 1
            raise
        except HawkerError:
            self._ledger.operations += 1
            raise
        self._ledger.operations += 1
        return answer

    def _say(self, deed: FleetOperation, text: str) -> None:
        self._ledger.say(Speaker.CLIENT, f"{deed.number}. {self.name}: {text}")
