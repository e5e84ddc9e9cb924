"""How much of a share each key has, where no key may have all of it. Pure.

One key alone may have nearly all there is. As it fills, the last part (the share's reserve) is for those who have less
than an equal part: so whoever came first with many never keeps a newcomer of another key out.
"""

from collections.abc import Mapping

from hawker.fair.turns import Share


def has_room(share: Share, *, mine: int, total: int, keys: int, count: int = 1) -> bool:
    """Whether so many more of a key may come in that has `mine` of the `total` that `keys` have, itself among them."""
    mine, total = mine + count, total + count
    if mine > share.each or total > share.total:
        return False
    return total <= share.total - share.reserve or mine <= share.total // keys


class Occupancy:
    """What is taken of a share now. Nobody waits: one that does not fit is refused."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._of: dict[str, int] = {}
        self.total = 0

    def fits(self, key: str, count: int = 1) -> bool:
        """Whether so many more of this key may come in."""
        mine = self._of.get(key, 0)
        return has_room(self._share, mine=mine, total=self.total, keys=len(self._of) + (not mine), count=count)

    @property
    def counts(self) -> Mapping[str, int]:
        """Of each key that is in."""
        return self._of

    def enter(self, key: str, count: int = 1) -> None:
        self._of[key] = self._of.get(key, 0) + count
        self.total += count

    def leave(self, key: str, count: int = 1) -> None:
        """Once for each that came in."""
        left = self._of.pop(key, 0) - count
        if left:
            self._of[key] = left
        self.total -= count
