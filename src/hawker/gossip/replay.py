"""Which counters of one sender were seen: nothing is taken twice, whoever records and repeats it.

The window slides with the greatest counter seen; what is older than the window is refused (RFC 4303, 3.4.3).
"""

WINDOW = 1024


class Window:
    """One sender's counters since it booted."""

    __slots__ = ("_greatest", "_seen", "_size")

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._greatest = -1
        self._seen = 0  # bit n: `_greatest - n` was seen

    def admits(self, counter: int) -> bool:
        """Whether it is new. Asked before a datagram is opened, so it changes nothing."""
        behind = self._greatest - counter
        return behind < 0 or (behind < self._size and not self._seen >> behind & 1)

    def add(self, counter: int) -> None:
        ahead = counter - self._greatest
        if ahead > 0:
            kept = self._seen << ahead if ahead < self._size else 0
            self._seen = (kept | 1) & ((1 << self._size) - 1)
            self._greatest = counter
        else:
            self._seen |= 1 << -ahead
