"""One call to the node, measured: how it came out is counted, and what a node must never answer is noted."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import GET_MACHINE, LIST_MACHINES, Machine, MachineParams
from hawker.api.route import B, P, Q, R, Unary
from hawker.chaos.tally import CallVerdict, SoakTally, outcome_of
from hawker.clock import Clock
from hawker.errors import HawkerError, NotFound
from hawker.ids import MachineId
from hawker.machine import State

APP = "soak"
ANSWERED_WITHIN_S = 30.0
"""Longer than the longest time for which a daemon is stopped."""


@dataclass(frozen=True, slots=True)
class CallOutcome(Generic[R]):
    """`value` when the outcome is OK, else the `error`."""

    outcome: CallVerdict
    value: R | None = None
    error: HawkerError | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is CallVerdict.OK

    @property
    def changed_nothing(self) -> bool:
        return self.outcome in (CallVerdict.REFUSED, CallVerdict.UNAVAILABLE)


class CalledNode(Protocol):
    """Whom is called, and who hears of what must not be."""

    @property
    def client(self) -> Caller: ...

    def note(self, what: str) -> None: ...


class MeasuredCalls:
    """The calls of one app, each measured."""

    def __init__(self, node: CalledNode, clock: Clock, tally: SoakTally) -> None:
        self.node = node
        self._clock = clock
        self._tally = tally

    async def call(self, route: Unary[P, Q, B, R], **arguments: Any) -> CallOutcome[R]:
        """`arguments` as of the client's `call`."""
        began = self._clock.monotonic()
        try:
            value = await self.node.client.call(route, **{"timeout_s": ANSWERED_WITHIN_S, **arguments})
            reply = CallOutcome(CallVerdict.OK, value)
        except HawkerError as error:
            reply = CallOutcome(outcome_of(error), error=error)
        self._tally.called(route.name, reply.outcome, self._clock.monotonic() - began)
        if reply.outcome is CallVerdict.INTERNAL:
            self.node.note(f"{route.name} was answered with: {reply.error}")
        return reply

    async def taken_back(self, machine_id: MachineId) -> bool:
        """Whether it could not be launched in the first place, and its history says so."""
        params = params_of(machine_id)
        try:
            machine = await self.node.client.call(GET_MACHINE, params=params)
        except HawkerError as error:
            return not isinstance(error, NotFound)
        return any(event.status == State.LAUNCH_FAILED for event in machine.events or ())

    async def machines(self) -> CallOutcome[dict[MachineId, Machine]]:
        listed = await self.call(LIST_MACHINES, params=AppParams(app_name=APP))
        if listed.value is None:
            return CallOutcome(listed.outcome, error=listed.error)
        return CallOutcome(listed.outcome, {MachineId(machine.id): machine for machine in listed.value.items})


def params_of(machine_id: MachineId) -> MachineParams:
    return MachineParams(app_name=APP, machine_id=machine_id)
