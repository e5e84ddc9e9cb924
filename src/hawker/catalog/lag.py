"""How far behind their owners the changes come that are applied here: the last thousand of them."""

from collections import deque
from collections.abc import Iterable

from hawker.catalog.change import Delta, Tx

KEPT = 1024


class Lag:
    """Seconds between an owner's commit, by its clock, and when it can be read here."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=KEPT)

    def note(self, batch: Iterable[Tx | Delta], now: float) -> None:
        self._seconds.extend(max(0.0, now - item.at) for item in batch if isinstance(item, Tx))

    def percentile(self, share: float) -> float | None:
        """None before anything came."""
        if not self._seconds:
            return None
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
