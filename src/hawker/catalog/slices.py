"""How much the storage's thread is given at a time, so that a slice takes no more than 25 ms and others get their turn.

A transaction is never cut. A delta is cut between versions: its reader is then on the way, as with any delta in parts.
"""

from collections import deque

from msgspec.structs import replace

from hawker.catalog.change import Delta, Tx
from hawker.ids import NodeId

SLICE_S = 0.025
FEWEST, FIRST, MOST = 16, 256, 8192


class Slices:
    """Learns from what slices took."""

    def __init__(self, ops: int = FIRST) -> None:
        self.ops = ops

    def took(self, ops: int, seconds: float) -> None:
        if seconds > SLICE_S:
            self.ops = max(FEWEST, self.ops // 2)
        elif seconds < SLICE_S / 4 and ops >= self.ops:
            self.ops = min(MOST, self.ops * 2)

    def take(self, ready: deque[Tx | Delta]) -> tuple[list[Tx | Delta], list[NodeId]]:
        """The next slice: at least one item, or one version of a delta. And the origins of the items that end in it."""
        batch: list[Tx | Delta] = []
        ended: list[NodeId] = []
        left = self.ops
        while ready and left > 0:
            item = ready.popleft()
            if isinstance(item, Delta) and len(item.ops) > left:
                item, rest = cut(item, left)
                if rest is not None:
                    ready.appendleft(rest)
                    batch.append(item)
                    break
            batch.append(item)
            ended.append(item.origin)
            left -= max(1, len(item.ops))
        return batch, ended


def cut(delta: Delta, ops: int) -> tuple[Delta, Delta | None]:
    """Into the versions that begin within the first so many ops, and the rest, if there is one."""
    end = max(1, ops)
    while end < len(delta.ops) and delta.ops[end].version == delta.ops[end - 1].version:
        end += 1
    if end >= len(delta.ops):
        return delta, None
    middle = delta.ops[end - 1].version
    first = replace(delta, upto=middle, ops=delta.ops[:end], last=False)
    return first, replace(delta, after=middle, ops=delta.ops[end:])
