"""What a worker of the model bids and publishes, in the values of the project's market; its own code ranks them."""

from collections.abc import Sequence
from functools import cache

import msgspec

from bench.schedulers.host import Host
from bench.schedulers.workload import Order
from hawker.api.contract.market import Bid, Headroom
from hawker.config.placement import Spread
from hawker.ids import NodeId
from hawker.market.preferences import Curve, Preferences
from hawker.market.ranking import Offer, rank

MILLI = 125
"""Thousandths of a cpu in a shared cpu, of which a node sells eight."""

_REGION = "sim"
_REMEMBERED = 1 << 16
_MIB = 1 << 20


class Remembered(Curve):
    """A curve that remembers what it read: hosts of a model are alike, and so are their shares."""

    __slots__ = ("_read",)
    _read: dict[float, float]

    def __init__(self, curve: Curve) -> None:
        super().__init__(curve.points)
        object.__setattr__(self, "_read", {})

    def at(self, value: float) -> float:
        read = self._read
        found = read.get(value)
        if found is None:
            if len(read) >= _REMEMBERED:
                read.clear()
            found = read[value] = super().at(value)
        return found


def remembering(preferences: Preferences) -> Preferences:
    """Gives the preferences in a form that is read faster."""
    curves = {name: Remembered(curve) for name, curve in preferences.curves.items()}
    return msgspec.structs.replace(preferences, curves=curves)


def node_id(host: Host) -> NodeId:
    return _named(host.number)


@cache
def _named(number: int) -> NodeId:
    return NodeId(f"{number:08x}")


def bid_of(host: Host, order: Order) -> Bid:
    """The bid of a host that has the room."""
    return Bid(
        fits=1,
        headroom={
            "cpu": Headroom(
                total=host.cpus * MILLI, takes=order.cpus * MILLI, left=(host.cpus_left - order.cpus) * MILLI
            ),
            "memory": Headroom(total=host.memory_mib, takes=order.memory_mib, left=host.memory_left - order.memory_mib),
        },
        image_bytes=order.image_mib * _MIB,
        missing_bytes=host.lacks_mib(order) * _MIB,
        same_app=host.apps.get(order.image, 0),
    )


def ranked(hosts: Sequence[Host], order: Order, preferences: Preferences) -> list[Host]:
    """Those that bid, the best first."""
    by_node = {node_id(host): host for host in hosts if host.up and host.fits(order)}
    offers = [Offer(node=node, region=_REGION, bid=bid_of(host, order)) for node, host in by_node.items()]
    best_first = rank(offers, preferences, spread=Spread.SOFT, seed=order.number)
    return [by_node[each.offer.node] for each in best_first]


def promise(cpus_share: float, memory_share: float, preferences: Preferences) -> float:
    """How good a bid would be, by the shares that a host published as used: what the broker sorts nodes by. Disks of
    the model never fill."""
    curves, weights = preferences.curves, preferences.weights
    points = (
        weights["cpu"] * curves["cpu"].at(cpus_share)
        + weights["memory"] * curves["memory"].at(memory_share)
        + weights["disk"] * curves["disk"].at(0.0)
    )
    return points / (weights["cpu"] + weights["memory"] + weights["disk"])
