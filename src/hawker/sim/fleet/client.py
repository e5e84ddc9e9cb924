"""Clients of a simulated fleet: call brokers as their contract says, and mind what they are told in one ledger. A buyer
orders several machines at once, and volumes with machines on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    Machine,
    StopRequest,
)
from hawker.api.contract.machine_operation import START_MACHINE, STOP_MACHINE
from hawker.api.contract.market import PLACE, PlaceAnswer, PlaceRequest
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest
from hawker.api.failure import ConnectionLost, Unreachable
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NameTaken, NoRoom, NotFound, OrderUncertain, Unavailable
from hawker.ids import MachineId, NodeId, VolumeId
from hawker.proof.fleet import Promised
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.network import CallNetwork, SimCaller
from hawker.sim.fleet.plan import FleetOperation, FleetVerb
from hawker.sim.harness.plan import do_in_turn
from hawker.sim.harness.trace import RunLedger, Speaker, Trace
from hawker.sim.node.sim_worker import config_of, params
from hawker.value_object import ValueObject


@dataclass(slots=True)
class Ordered:
    """By one client, under one label. `machine` is what it was told that it became; a spare `watches` another."""

    label: str
    app: str
    key: str | None
    watches: MachineId | None = None
    machine: MachineId | None = None
    destroyed: bool = False  # or asked for


@dataclass(slots=True)
class Counted:
    """Several machines ordered at once, or all of them or none. `machines` are those that were told; `refused`: it was
    said, in the first answer, that there are none."""

    label: str
    app: str
    key: str | None
    count: int
    whole: bool
    machines: tuple[MachineId, ...] = ()
    refused: bool = False


class FleetLedger(RunLedger):
    """`filled` counts the machines that were told, `lost` the calls that nobody answered."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        super().__init__(clock, trace)
        self.orders: dict[str, Ordered] = {}
        self.counted: dict[str, Counted] = {}
        self.volumes: dict[str, VolumeId] = {}  # by label, as they were told
        self.cordoned: dict[NodeId, frozenset[MachineId]] = {}  # with what was there when that was answered
        self.filled = self.lost = 0

    def spares(self) -> tuple[MachineId | None, list[MachineId]]:
        """The first machine that has spares, and these."""
        watched = next((order.watches for order in self.orders.values() if order.watches and order.machine), None)
        spares = [each.machine for each in self.orders.values() if each.machine and each.watches == watched]
        return watched, spares if watched else []

    @property
    def promised(self) -> list[Promised]:
        """Machines, whatever they were ordered by."""
        one = [
            Promised(order=order.label, machine=order.machine)
            for order in self.orders.values()
            if order.machine is not None and not order.destroyed
        ]
        return [*one, *(Promised(order=each.label, machine=m) for each in self.counted.values() for m in each.machines)]


PATIENCE_S = 12.0
_PAUSE_S = 0.3
_ORDER = "order"


_WORDS: Mapping[type, str] = {ConnectionLost: "Lost"}
"""What a trace calls an error. A seed's digest is of its trace, so a word here outlives the name of a class."""


def told_of(error: HawkerError | None) -> str:
    """An error as a trace has it: its word and its text."""
    return f"{_WORDS.get(type(error), type(error).__name__)}: {error}"


class _Answer(ValueObject, frozen=True):
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
        call_network: CallNetwork,
        nodes: list[NodeId],
        ledger: FleetLedger,
        clock: Clock,
        is_new: Callable[[MachineId], bool] = lambda machine_id: False,
    ) -> None:
        self.name, self._call_network, self._nodes, self._is_new = name, call_network, nodes, is_new
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

    async def work(self, operations: tuple[FleetOperation, ...], began: float) -> None:
        await do_in_turn(operations, self._clock, self._do, began)

    async def _do(self, operation: FleetOperation) -> None:
        match operation.verb:
            case FleetVerb.ORDER:
                await self._order(operation, f"key of {operation.label}" if operation.word else None)
            case FleetVerb.SPARE:
                watched = self._ledger.orders.get(operation.word)
                if watched is not None and watched.machine is not None:
                    await self._order(operation, f"key of {operation.label}", watches=watched.machine)
            case FleetVerb.AGAIN:
                order = self._ledger.orders.get(operation.label)
                if order is not None and order.key is not None and not order.destroyed:
                    await self._place(operation, order)
            case _:
                order = self._ledger.orders.get(operation.label)
                if order is not None and order.machine is not None:
                    await self._change(operation, order, order.machine)

    # Orders.

    async def _order(self, operation: FleetOperation, key: str | None, watches: MachineId | None = None) -> None:
        order = Ordered(operation.label, self.app, key, watches)
        self._ledger.orders[operation.label] = order
        await self._place(operation, order)

    async def _place(self, operation: FleetOperation, order: Ordered) -> None:
        """For the first time, or as a client does that has lost the answer."""
        self._say(operation, f"{operation.verb} {order.label}{f' with key {order.key!r}' if order.key else ''}")
        memory = int(operation.amount) or 256
        spare = {"standbys": [order.watches]} if order.watches else {}
        extra = {**spare, **self._extra(operation)}
        made = config_of(metadata={_ORDER: order.label}, guest={"memory_mb": memory}, **extra)
        body = CreateMachineRequest(config=made, skip_launch=bool(spare))
        for broker in operation.nodes:
            answer = await self._send(broker, order, body)
            if answer.machine is not None:
                self._told(operation, order, answer.machine)
                return
            self._say(operation, f"{order.label}: {told_of(answer.error)}")
            if isinstance(answer.error, OrderUncertain):
                order.key = answer.error.order
            elif isinstance(answer.error, NoRoom) or (order.key is None and not answer.sure):
                return  # it is full; or nobody can tell, and nothing may be asked twice
            await self._clock.sleep(_PAUSE_S)

    def _extra(self, operation: FleetOperation) -> dict[str, object]:
        """What else the config of an order has."""
        return {}

    async def _send(self, broker: int, order: Ordered, body: CreateMachineRequest) -> _Answer:
        try:
            here = AppParams(app_name=self.app)
            return _Answer(await self._call(broker, CREATE_MACHINE, params=here, body=body, idempotency_key=order.key))
        except HawkerError as error:
            doubtful = isinstance(error, Fault | DeadlineExceeded)
            return _Answer(error=error, sure=isinstance(error, Unreachable | Unavailable) or not doubtful)

    def _told(self, operation: FleetOperation, order: Ordered, machine: Machine) -> None:
        self._say(operation, f"{order.label} is {machine.id}")
        known, order.machine = order.machine, MachineId(machine.id)
        self._ledger.filled += known is None
        if known is not None and known != machine.id and not order.destroyed:
            what = f"it was answered with {known}, and then with {machine.id}"
            self._ledger.find([Violation(Invariant.FILLED_ONCE, order.label, what)])

    # Changes.

    async def _change(self, operation: FleetOperation, order: Ordered, machine_id: MachineId) -> None:
        self._say(operation, f"{operation.verb} {order.label}, {machine_id}")
        target, broker = params(machine_id, self.app), operation.nodes[0]
        gone, order.destroyed = order.destroyed, order.destroyed or operation.verb is FleetVerb.DESTROY
        try:
            if operation.verb is FleetVerb.DESTROY:
                await self._call(broker, DELETE_MACHINE, params=target, query=DeleteMachineQuery(force=True))
            elif operation.verb is FleetVerb.STOP:
                await self._call(broker, STOP_MACHINE, params=target, body=StopRequest())
            else:
                await self._call(broker, START_MACHINE, params=target)
        except HawkerError as error:
            self._say(operation, f"{operation.verb} {order.label}: {told_of(error)}")
            if isinstance(error, NotFound) and not gone and not self._is_new(machine_id):
                what = f"the answer to {order.label}; a broker says: {error}"
                self._ledger.find([Violation(Invariant.KEPT, machine_id, what)])
        else:
            self._say(operation, f"{operation.verb} {order.label}: done")

    async def _call(self, broker: int, route: Any, **given: Any) -> Any:
        caller = SimCaller(self._call_network, None, self._nodes[broker], self.name)
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

    def _say(self, operation: FleetOperation, text: str) -> None:
        self._ledger.say(Speaker.CLIENT, f"{operation.number}. {self.name}: {text}")


COUNTED = "counted"
"""The key in a machine's metadata that names the order of several."""

_MIB = 256


class Buyer(FleetClient):
    async def _do(self, operation: FleetOperation) -> None:
        match operation.verb:
            case FleetVerb.COUNT:
                await self._count(operation)
            case FleetVerb.VOLUME:
                await self._volume(operation)
            case _:
                await super()._do(operation)

    async def _count(self, operation: FleetOperation) -> None:
        """With a key it is asked for again, elsewhere, until there is an answer that counts."""
        keyed, whole = "key" in operation.word, "whole" in operation.word
        key = f"key of {operation.label}" if keyed else None
        order = Counted(operation.label, self.app, key, int(operation.amount), whole)
        self._ledger.counted[operation.label] = order
        self._say(operation, f"{operation.verb} {operation.label}: {order.count}{', all or none' if whole else ''}")
        for broker in operation.nodes if key else operation.nodes[:1]:
            try:
                answer = await self._placed(broker, order)
            except HawkerError as error:
                self._say(operation, f"{operation.label}: {told_of(error)}")
                order.refused = whole and isinstance(error, NoRoom) and broker == operation.nodes[0]
                if isinstance(error, NoRoom | OrderUncertain):
                    return
            else:
                return self._have(operation, order, answer)

    async def _placed(self, broker: int, order: Counted) -> PlaceAnswer:
        made = config_of(metadata={COUNTED: order.label}, guest={"memory_mb": _MIB})
        body = PlaceRequest(
            app=order.app, machine=CreateMachineRequest(config=made), count=order.count, all_or_nothing=order.whole
        )
        answer: PlaceAnswer = await self._call(broker, PLACE, body=body, idempotency_key=order.key)
        return answer

    def _have(self, operation: FleetOperation, order: Counted, answer: PlaceAnswer) -> None:
        order.machines = tuple(MachineId(machine.id) for machine in answer.machines)
        self._ledger.filled += len(order.machines)
        self._say(operation, f"{operation.label} is {', '.join(order.machines) or 'nothing'}")
        if order.whole and len(order.machines) < order.count:
            what = f"{len(order.machines)} of {order.count} were the answer to an order of all or none"
            self._ledger.find([Violation(Invariant.ALL_OR_NONE, operation.label, what)])

    async def _volume(self, operation: FleetOperation) -> None:
        """And, once it is there, a machine on it, under the same label."""
        broker = operation.nodes[0]
        self._say(operation, f"{operation.verb} {operation.label}")
        body = CreateVolumeRequest(name=operation.label.replace("-", "_"), size_gb=1)
        try:
            made = await self._call(broker, CREATE_VOLUME, params=AppParams(app_name=self.app), body=body)
        except HawkerError as error:
            return self._say(operation, f"{operation.label}: {told_of(error)}")
        self._ledger.volumes[operation.label] = VolumeId(made.id)
        self._say(operation, f"{operation.label} is {made.id}")
        await self._order(operation, f"key of {operation.label}")

    def _extra(self, operation: FleetOperation) -> dict[str, object]:
        volume = self._ledger.volumes.get(operation.label)
        return {} if volume is None else {"mounts": [{"volume": volume, "path": "/data"}]}
