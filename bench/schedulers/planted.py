"""Planted bugs: parts of another kind, each of which breaks one promise. The notary must find every one."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.schedulers.costs import Costs
from bench.schedulers.courier import UNREACHABLE, Answer, Courier
from bench.schedulers.fleet import Fleet
from bench.schedulers.host import Host
from bench.schedulers.notary import Promise
from bench.schedulers.run import Kit
from bench.schedulers.timeline import Process
from bench.schedulers.workload import Order

ROUGH = Costs(loss=0.02, delay_s=0.05)
"""A network in which bugs show soon."""


class BelievesItsBid(Host):
    """It said that there is room, so there is."""

    def admit(self, order: Order, ticket: int) -> bool:
        if order.number in self.machines or self.has_cancelled(ticket):
            return False
        self.take(order)
        return True


class KeepsRoom(Host):
    def release(self, order: Order) -> None:
        self.machines.pop(order.number, None)


class ForgetsCancels(Host):
    def cancel(self, order: Order, ticket: int) -> None:
        self.release(order)


class AsksTheNext(Courier):
    """No answer means no, does it not?"""

    def after_silence(self, host: Host, order: Order, ticket: int) -> Process[Answer]:
        yield self.delay_s()
        return UNREACHABLE


class ForgetsRecords(Fleet):
    """Records were not on the disk yet."""

    def come_back(self, host: Host) -> None:
        for order in list(host.machines.values())[-1:]:
            host.release(order)
        super().come_back(host)


@dataclass(frozen=True, slots=True)
class Plant:
    """`breaks` is the promise of which the first breach must be one."""

    name: str
    what: str
    kit: Kit
    breaks: Promise


def _plant(name: str, what: str, breaks: Promise, **parts: Callable[..., object]) -> Plant:
    return Plant(name, what, Kit(**parts), breaks)  # type: ignore[arg-type]


PLANTS: tuple[Plant, ...] = (
    _plant(
        "stale-capacity",
        "a worker believes the capacity that it told, and admits without a look",
        Promise.NOT_OVERSOLD,
        host=BelievesItsBid,
    ),
    _plant(
        "double-fill",
        "after silence an order goes to the next worker without a cancel",
        Promise.FILLS_ONCE,
        courier=AsksTheNext,
    ),
    _plant(
        "late-order",
        "a worker does not remember what was cancelled, and an order comes after its cancel",
        Promise.FILLS_ONCE,
        host=ForgetsCancels,
    ),
    _plant("room-kept", "the room of a machine that ended is not given back", Promise.SUMS, host=KeepsRoom),
    _plant("records-lost", "a host that comes back has lost its newest record", Promise.KEPT, fleet=ForgetsRecords),
)  # fmt: skip


def find(name: str) -> Plant | None:
    return next((plant for plant in PLANTS if plant.name == name), None)
