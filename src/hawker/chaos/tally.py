"""What a soak counts: each call to the node, measured, by kind and outcome; faults, recoveries, findings."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import GET_MACHINE, LIST_MACHINES, Machine, MachineParams
from hawker.api.route import B, P, Q, R, Unary
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NotFound, Unavailable
from hawker.ids import MachineId
from hawker.machine import State
from hawker.value_object import ValueObject


class CallVerdict(StrEnum):
    """How a call ended, as its client saw it."""

    OK = "ok"
    REFUSED = "refused"  # typed: the machine is in another state, is held by a lease, there is no room
    UNAVAILABLE = "unavailable"  # nothing was changed; the node is away or cannot write
    LOST = "lost"  # the connection went, or no answer came: it may have happened
    INTERNAL = "internal"  # the node met an error that it has no word for


_LOST_TEXTS = ("the connection to http", "no answer from http")
"""How the client, and not the node, says what went wrong."""


def outcome_of(error: HawkerError) -> CallVerdict:
    own = any(text in str(error) for text in _LOST_TEXTS)
    match error:
        case Unavailable():
            return CallVerdict.UNAVAILABLE
        case Fault() | DeadlineExceeded() if own:
            return CallVerdict.LOST
        case Fault():
            return CallVerdict.INTERNAL
        case _:
            return CallVerdict.REFUSED


class SoakFinding(ValueObject, frozen=True):
    """Something that must not be. `at_s` since the soak began; `log` the end of the daemon's log then."""

    at_s: float
    what: str
    """What must not be, for people."""
    log: str = ""


class SoakTally(ValueObject, frozen=True):
    """`gaps_s`: how long each time the node did not answer; `rests_s`: how long it took to come to rest, after which it
    was compared with its promises."""

    calls: defaultdict[str, Counter[CallVerdict]] = msgspec.field(default_factory=lambda: defaultdict(Counter))
    latencies_ms: defaultdict[str, list[float]] = msgspec.field(default_factory=lambda: defaultdict(list))
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    boots_ms: list[float] = msgspec.field(default_factory=list)
    recoveries_ms: defaultdict[str, list[float]] = msgspec.field(default_factory=lambda: defaultdict(list))
    findings: list[SoakFinding] = msgspec.field(default_factory=list)
    gaps_s: list[float] = msgspec.field(default_factory=list)
    rests_s: list[float] = msgspec.field(default_factory=list)

    def called(self, operation: str, outcome: CallVerdict, seconds: float) -> None:
        self.calls[operation][outcome] += 1
        if outcome is CallVerdict.OK:
            self.latencies_ms[operation].append(seconds * 1000)


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# One call to the node, measured: how it came out is counted, and what a node must never answer is noted.

APP = "soak"
ANSWERED_WITHIN_S = 30.0
"""Longer than the longest time for which a daemon is stopped."""


class CallOutcome(ValueObject, Generic[R], frozen=True):
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
