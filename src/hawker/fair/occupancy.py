"""How much of a share each key has, where no key may have all of it. Pure.

One key alone may have nearly all there is. As it fills, the last part (the share's reserve) is for those who have less
than an equal part: so whoever came first with many never keeps a newcomer of another key out.
"""

from collections.abc import Mapping

from hawker.fair.turns import Share


def has_room(share: Share, *, mine: int, total: int, keys: int, count: int = 1) -> bool:
    """Whether `count` more of one key may come in. The key has `mine` of the `total` that all `keys` have; it is one of
    these `keys`."""
    mine, total = mine + count, total + count
    if mine > share.each or total > share.total:
        return False
    return total <= share.total - share.reserve or mine <= share.total // keys


class Occupancy:
    """The part of a share that is taken now, by key. Nobody waits: what does not fit is refused."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._of: dict[str, int] = {}
        self.total = 0

    def fits(self, key: str, count: int = 1) -> bool:
        """Whether `count` more of this key may come in."""
        mine = self._of.get(key, 0)
        return has_room(self._share, mine=mine, total=self.total, keys=len(self._of) + (not mine), count=count)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number that each key has in the share now; a key without any is left out."""
        return self._of

    def enter(self, key: str, count: int = 1) -> None:
        self._of[key] = self._of.get(key, 0) + count
        self.total += count

    def leave(self, key: str, count: int = 1) -> None:
        """Give back `count` of what this key has. The caller does so once for each that it entered."""
        left = self._of.pop(key, 0) - count
        if left:
            self._of[key] = left
        self.total -= count
