"""Brings an order to the host that was chosen, and its answer back. Every policy that sends orders sends them by this
one, so that what differs between them is only who decides what.

After silence the order is cancelled there; it goes elsewhere only once that is confirmed, so it never fills twice.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import count

from bench.schedulers.costs import Costs
from bench.schedulers.fleet import Fleet
from bench.schedulers.host import Host
from bench.schedulers.notary import Notary
from bench.schedulers.timeline import Process, Timeline
from bench.schedulers.workload import Order
from hawker.clock import Clock


class Word(Enum):
    FILLED = "filled"
    NO_ROOM = "no room"
    UNREACHABLE = "unreachable"  # not sent, or its cancel is confirmed: it may go elsewhere
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class Answer:
    word: Word
    runs_at_s: float = 0.0


NO_ROOM, UNREACHABLE, IN_DOUBT = Answer(Word.NO_ROOM), Answer(Word.UNREACHABLE), Answer(Word.IN_DOUBT)


class Courier:
    def __init__(self, fleet: Fleet, costs: Costs, timeline: Timeline, clock: Clock, notary: Notary) -> None:
        self._fleet = fleet
        self._costs = costs
        self._timeline = timeline
        self._clock = clock
        self._notary = notary
        self._tickets = count()

    def delay_s(self) -> float:
        """How long one message takes."""
        return self._costs.delay_s * (0.5 + self._clock.random())

    def deliver(self, host: Host, order: Order) -> Process[Answer]:
        """Half of the lost messages are answers; the other half are orders, and these come after all, when it is
        late."""
        ticket, fate = next(self._tickets), self._clock.random() / self._costs.loss if self._costs.loss else 1.0
        yield self.delay_s()
        if not host.up:
            yield self._costs.silence_s
            return UNREACHABLE
        if fate < 0.5:
            self._timeline.call(2 * self._costs.silence_s, self._arrive, host, order, ticket)
            answer = NO_ROOM
        else:
            answer = self._arrive(host, order, ticket)
        yield self.delay_s()
        if host.up and fate >= 1:
            return answer
        yield self._costs.silence_s
        return (yield from self.after_silence(host, order, ticket))

    def _arrive(self, host: Host, order: Order, ticket: int) -> Answer:
        if host.up and host.admit(order, ticket):
            return Answer(Word.FILLED, self._fleet.filled(host, order))
        return NO_ROOM

    def after_silence(self, host: Host, order: Order, ticket: int) -> Process[Answer]:
        """It may have been filled. A host that confirms the cancel has it no more, and will not have it."""
        yield self.delay_s()
        if not host.up:
            return IN_DOUBT
        self._fleet.cancel(host, order, ticket)
        self._notary.cancelled(order)
        yield self.delay_s()
        return UNREACHABLE
