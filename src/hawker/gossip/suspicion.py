"""How long a suspect has to refute: less and less, the more others accuse it as well (Lifeguard, LHA-Suspicion)."""

import math

from hawker.ids import NodeId

_CALLS = 3


class Suspicion:
    """Begins with one accuser. `needed` others shorten it from `most_s` to `least_s`."""

    __slots__ = ("_accusers", "_began", "_least_s", "_most_s", "_needed", "_not_before", "accuser", "called")

    def __init__(self, now: float, least_s: float, most_s: float, needed: int, accuser: NodeId) -> None:
        self._began, self._least_s, self._most_s, self._needed = now, least_s, most_s, needed
        self.accuser = accuser  # the first
        self._accusers = {accuser}
        self.called = 0
        self._not_before = now

    @property
    def confirmed(self) -> int:
        return len(self._accusers) - 1

    @property
    def due(self) -> float:
        if self._needed < 1:
            return self._began + self._least_s
        share = math.log(self.confirmed + 1) / math.log(self._needed + 1)
        due = self._began + max(self._least_s, self._most_s - share * (self._most_s - self._least_s))
        return max(due, self._not_before)

    def calls_at(self, every_s: float) -> float:
        """When to ask the suspect itself once more: a few times before its time is up, since what it says against the
        suspicion may have been lost on its way here."""
        return self.due - (_CALLS - self.called) * every_s if self.called < _CALLS else float("inf")

    def confirm(self, accuser: NodeId) -> bool:
        """Whether this is news that others should hear. Only as many accusers are kept as count."""
        if accuser in self._accusers or self.confirmed >= self._needed:
            return False
        self._accusers.add(accuser)
        return True

    def hold(self, until: float) -> None:
        """Not over before this moment, so that the suspect can be asked, also when others confirm late."""
        self._not_before = until

    def postpone(self, seconds: float) -> None:
        """The one who waits stood still itself, and may have missed the refutation."""
        self._began += seconds
        self._not_before += seconds
