"""What holds of requests that travel by edges, whatever fails on the way. A ledger is told by clients what they send
and hear, and by machines what reaches them; it believes nobody in between.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from hawker.ids import AppName, MachineId, NodeId
from hawker.proof.flow_checks import FlowLedger
from hawker.proof.violation import Invariant, Violation

WAKE_S = 60.0
"""So long is a machine looked for, and no longer."""
_LATE_S = 5.0
_LEAVES_S = 6.0  # until nothing of a request is counted any more, be its host lost
_NOBODY = NodeId("")
_REPEATED = 2
"""What may be repeated is sent to machines so often at most."""


@dataclass(slots=True)
class SentRequest:
    """`steady`: some machine of the app, on the edge's own host, takes requests from its sending to its answer, and the
    edge stays. `patience_s` is what else may hold it up: the app's own time, links that are cut. `edge` is who serves
    it; a `plain` one is answered by the first machine that has it, and until then a `silent` one says nothing. `region`
    is the only one that its client allows, empty for all; `client` is the client's address. An empty `app` is nobody's:
    no machine may have the request."""

    id: str
    app: AppName
    method: str
    sent_at: float
    patience_s: float
    reached: list[MachineId] = field(default_factory=list)
    replays: int = 0
    status: int | None = None
    over: bool = False
    over_at: float = inf
    excused: bool = False  # its edge or its client went away
    edge: NodeId = _NOBODY
    plain: bool = False
    silent: bool = False
    region: str = ""
    client: str = ""
    _due: tuple[float, int] | None = None  # from when on it may not wait for the last of so many machines any more

    def expect_end(self, due: float | None) -> None:
        """The host of the machine that has it is lost: until then it has ended, or has reached another one."""
        self._due = None if due is None else (due, len(self.reached))

    @property
    def waits(self) -> bool:
        """For a host that is lost."""
        return self._due is not None and not self.over

    def waits_in_vain(self, now: float) -> bool:
        return self._due is not None and now > self._due[0] and len(self.reached) == self._due[1]

    @property
    def may_be_repeated(self) -> bool:
        return self.method in ("GET", "HEAD", "PUT", "DELETE")


class EdgeLedger:
    """`now` in seconds; `find` takes what is wrong, once it is known."""

    def __init__(self, now: Callable[[], float], find: Callable[[Violation], None]) -> None:
        self._now = now
        self._find = find
        self.requests: dict[str, SentRequest] = {}
        self.flows = FlowLedger(now, find)
        self._in_flight: dict[MachineId, dict[str, int]] = {}
        self.may_reach: Callable[[AppName, AppName], bool] = lambda app, other: app == other
        self.region_of: Callable[[MachineId], str] = lambda machine: ""

    def sent(self, request: SentRequest) -> None:
        self.requests[request.id] = request

    def reached(
        self, request_id: str, machine: MachineId, app: AppName, hard_limit: int | None, *, closed: bool
    ) -> None:
        """A machine has the head of a request. `closed`: its edge has said that nobody comes in any more."""
        request = self.requests.get(request_id)
        if request is None:
            self._break(Invariant.OWN_APP, machine, f"got request {request_id!r} that nobody sent")
            return
        request.reached.append(machine)
        times = len(request.reached) - request.replays
        if times > (_REPEATED if request.may_be_repeated else 1):
            self._break(Invariant.SENT_ONCE, request_id, f"{request.method} reached {', '.join(request.reached)}")
        if not self.may_reach(request.app, app):
            self._break(Invariant.OWN_APP, request_id, f"of app {request.app} reached {machine} of app {app}")
        region = self.region_of(machine)
        if request.region and not request.replays and request.region != region:
            self._break(Invariant.OWN_REGION, request_id, f"for {request.region} reached {machine} in {region}")
        if closed:
            self._break(Invariant.UNCUT, machine, f"got {request_id} after its edge had closed it")
        flying = self._in_flight.setdefault(machine, {})
        flying[request_id] = flying.get(request_id, 0) + 1
        if hard_limit is not None and sum(flying.values()) > hard_limit:
            self._break(Invariant.HARD_LIMIT, machine, f"has {sum(flying.values())} in flight, {hard_limit} at most")

    def left(self, request_id: str, machine: MachineId) -> None:
        """The machine has answered it, or its connection is gone."""
        flying = self._in_flight.get(machine, {})
        if request_id in flying:
            flying[request_id] -= 1
            if not flying[request_id]:
                del flying[request_id]

    def in_flight(self, machine: MachineId) -> int:
        return sum(self._in_flight.get(machine, {}).values())

    def asked_of(self, machines: Collection[MachineId], edge: NodeId) -> Iterator[SentRequest]:
        """The plain ones of this edge that one of these machines has had last."""
        for request in self.requests.values():
            waits = not request.over and request.plain and request.edge == edge and request.reached
            if waits and request.reached[-1] in machines:
                yield request

    def forgive(self) -> None:
        """Whoever was lost is there again."""
        for request in self.requests.values():
            request.expect_end(None)

    def rests(self, machine: MachineId) -> None:
        """Its worker has agreed to a rest."""
        self.flows.rests(machine)
        if self.in_flight(machine):
            self._break(Invariant.UNCUT, machine, f"rests with {self.in_flight(machine)} in flight")

    def wakes(self, node: NodeId, count: int, most: int) -> None:
        """So many machines of a host are on their way up because its edge has asked for them."""
        if count > most:
            self._break(Invariant.WAKES_BOUND, node, f"starts {count} at once, {most} at most")

    def abroad(self, node: NodeId, count: int) -> None:
        """So many requests are in other regions by the edge of this host. It hands on those alone that came to it."""
        late = self._now() - _LEAVES_S
        own = sum(each.edge == node and each.over_at > late for each in self.requests.values())
        if count > own:
            self._break(Invariant.NOT_ROUND, node, f"has handed on {count} to other regions, and {own} came to it")

    def emptied(self, machine: MachineId) -> None:
        """It has ended, with all that was in there."""
        self._in_flight.pop(machine, None)

    def forged(self, machine: MachineId, request_id: str, name: str, value: str) -> None:
        self._break(Invariant.UNFORGED, machine, f"got {name}: {value} in {request_id}")

    def answered(self, request_id: str, status: int | None, *, served: bool) -> None:
        """None for a connection that ended without an answer. `served`: some machine could take it all the time."""
        request = self.requests[request_id]
        request.status, request.over, request.over_at = status, True, self._now()
        if served and not request.excused and status != 200:
            said = "no answer" if status is None else f"{status}"
            where = ", ".join(request.reached) or "no machine"
            self._break(Invariant.SERVED, request_id, f"{request.method} got {said}; it reached {where}")

    def overdue(self) -> Iterator[Violation]:
        for request in self.requests.values():
            if not request.over and not request.excused and request.waits_in_vain(self._now()):
                request.expect_end(None)
                yield Violation(Invariant.ANSWERED, request.id, f"{request.method} waits for a host that is lost")
            looked_s = WAKE_S * (1 + request.replays)  # a replay looks for a machine anew
            late = self._now() - request.sent_at - looked_s - request.patience_s - _LATE_S
            if not request.over and not request.excused and late > 0:
                yield Violation(Invariant.ANSWERED, request.id, f"{request.method} waits {late:.0f} s for too long")

    def _break(self, invariant: Invariant, about: str, what: str) -> None:
        self._find(Violation(invariant, about, what))
