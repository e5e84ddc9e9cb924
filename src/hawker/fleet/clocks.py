"""Whose wall clock is wrong, as far as one node can tell. Pure. Nothing is put in order by wall clocks; leases, tokens
that expire and what is kept for a time go by them.
"""

from collections.abc import Iterable
from statistics import median_high, median_low

from hawker.fleet.joining import MOST_SKEW_S
from hawker.gossip.contract import Fate, Member
from hawker.ids import NodeId

_LIVING = frozenset({Fate.ALIVE, Fate.SUSPECT})


def wrong_clocks(me: NodeId, members: Iterable[Member]) -> tuple[tuple[NodeId, str], ...]:
    """Nodes, and what is wrong with the clock of each. Where most others say the same, this node's is wrong; of two
    nodes nobody can tell."""
    measured = {each.node: each.skew_s for each in members if each.fate in _LIVING and each.rtt_s and each.node != me}
    usual_s = _usual_s(measured.values())
    found = [(me, f"its clock is {_side(-usual_s)} those of most other nodes")] if usual_s else []
    agree = [skew_s for skew_s in (0.0, *measured.values()) if abs(skew_s - usual_s) <= MOST_SKEW_S]
    most = 2 * len(agree) > 1 + len(measured)
    against = "that of most nodes" if most else "this node's, or this node's is wrong"
    for node, skew_s in sorted(measured.items()):
        if abs(skew_s - usual_s) > MOST_SKEW_S:
            found.append((node, f"its clock is {_side(skew_s - usual_s)} {against}"))
    return tuple(found)


def _usual_s(skews: Iterable[float]) -> float:
    """By how much most of at least two others are ahead of this node; 0 when they are not."""
    ordered = sorted(skews)
    if len(ordered) < 2:
        return 0.0
    low, high = median_low(ordered), median_high(ordered)
    if low > MOST_SKEW_S:
        return low
    return high if high < -MOST_SKEW_S else 0.0


def _side(ahead_s: float) -> str:
    return f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"
