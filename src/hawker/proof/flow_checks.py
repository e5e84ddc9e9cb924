"""What holds of datagrams that travel by edges. A ledger is told by clients what they miss, by machines what reaches
them and what they say; it believes nobody in between.
"""

from collections.abc import Callable

from hawker.ids import AppName, MachineId
from hawker.proof.violation import Invariant, Violation
from hawker.value_object import ValueObject

LASTS_S = 118.0
"""So long after a machine's answer its flow lasts at least."""


class SentFlow(ValueObject, frozen=True):
    """What one client's port sends to one address of an app."""

    id: str
    """What its datagrams begin with; one flow of a run has it."""
    app: AppName


class FlowLedger:
    """`now` in seconds; `find` takes what is wrong, once it is known."""

    def __init__(self, now: Callable[[], float], find: Callable[[Violation], None]) -> None:
        self._now = now
        self._find = find
        self.flows: dict[str, SentFlow] = {}
        self._answered: dict[str, tuple[MachineId, float]] = {}  # who has answered it last, and when

    def sent(self, flow: SentFlow) -> None:
        self.flows[flow.id] = flow

    def reached(
        self, flow_id: str, machine: MachineId, app: AppName, inside: int, hard_limit: int | None, *, closed: bool
    ) -> None:
        """A machine has a datagram, and `inside` flows have a way to it. `closed`: for a while its edge has let nobody
        in, and those who were in there are to have ended."""
        flow = self.flows.get(flow_id)
        if flow is None or flow.app != app:
            whose = "nobody" if flow is None else flow.app
            self._break(Invariant.OWN_APP, machine, f"of app {app} got a datagram of flow {flow_id!r}, for {whose}")
        if hard_limit is not None and inside > hard_limit:
            self._break(Invariant.HARD_LIMIT, machine, f"has {inside} flows, {hard_limit} at most")
        if closed:
            self._break(Invariant.UNCUT, machine, f"got a datagram of {flow_id} after its edge had closed it")

    def answers(self, flow_id: str, machine: MachineId) -> None:
        self._answered[flow_id] = machine, self._now()

    def disturb(self) -> None:
        """Something has ended edges, machines or ways, and with them flows."""
        self._answered.clear()

    def rests(self, machine: MachineId) -> None:
        """Its worker has agreed to a rest."""
        for flow_id, (answerer, at) in self._answered.items():
            silent_s = self._now() - at
            if answerer == machine and silent_s < LASTS_S:
                self._break(Invariant.UNCUT, machine, f"rests, and answered flow {flow_id} {silent_s:.0f} s ago")

    def missed(self, flow_id: str, number: int) -> None:
        """Nobody has answered a datagram that some machine could have taken, with nothing in the way."""
        self._break(Invariant.SERVED, flow_id, f"datagram {number} got no answer")

    def _break(self, invariant: Invariant, about: str, what: str) -> None:
        self._find(Violation(invariant, about, what))
