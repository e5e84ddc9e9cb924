"""Writes down what hosts and schedulers do, on its own, and holds it against what was promised:

no host is oversold; no order fills twice; no acknowledged machine is lost but with a host that never comes back; the
room of a host is the sum of its records; every order is answered.

It needs a byte for each order and an entry for each machine that there is.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from bench.schedulers.host import Host
from bench.schedulers.workload import Order

_MOST = 20
_FILLED, _ACKNOWLEDGED, _ANSWERED = 1, 2, 4


class Promise(StrEnum):
    NOT_OVERSOLD = "no host is oversold"
    FILLS_ONCE = "no order fills twice"
    KEPT = "no acknowledged machine is lost"
    SUMS = "the room of a host is the sum of its records"
    ANSWERED = "every order is answered once"


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    promise: Promise
    about: str
    what: str


class _Sold:
    """On one host, counted by the notary."""

    __slots__ = ("cpus", "machines", "memory_mib")

    def __init__(self) -> None:
        self.cpus = self.memory_mib = self.machines = 0


class Notary:
    def __init__(self, hosts: Sequence[Host]) -> None:
        self.breaches: list[Breach] = []
        self.fills = 0
        self.machines = 0
        self.lost_with_hosts = 0
        self._hosts = hosts
        self._sold = [_Sold() for _ in hosts]
        self._where: dict[int, int] = {}  # order to host, of the machines that there are
        self._marks = bytearray()
        self._gone: set[int] = set()  # hosts that never come back

    def filled(self, host: Host, order: Order) -> None:
        if self._marked(order, _FILLED):
            where = self._where.get(order.number)
            there = "ended before" if where is None else f"is on host {where}"
            self._breach(Promise.FILLS_ONCE, f"order {order.number}", f"filled by host {host.number}, and {there}")
            return
        self._mark(order, _FILLED)
        self.fills += 1
        self._where[order.number] = host.number
        self._count(host, order, 1)
        sold = self._sold[host.number]
        if sold.cpus > host.cpus or sold.memory_mib > host.memory_mib:
            what = f"sold {sold.cpus} of {host.cpus} cpus, {sold.memory_mib} of {host.memory_mib} MiB"
            self._breach(Promise.NOT_OVERSOLD, f"host {host.number}", what)

    def released(self, host: Host, order: Order) -> None:
        """The machine ended, or its order was cancelled; after a cancel it may fill elsewhere."""
        if self._where.get(order.number) == host.number:
            del self._where[order.number]
            self._count(host, order, -1)

    def cancelled(self, order: Order) -> None:
        """Confirmed by the only host that may have filled it."""
        if order.number not in self._where and not self._marked(order, _ACKNOWLEDGED):
            self._unmark(order, _FILLED)

    def acknowledged(self, host: Host, order: Order) -> None:
        self._answer(order)
        self._mark(order, _ACKNOWLEDGED)
        if not self._marked(order, _FILLED):
            self._breach(Promise.KEPT, f"order {order.number}", f"acknowledged, and not filled by host {host.number}")

    def refused(self, order: Order) -> None:
        """Or left in doubt: the customer knows that it is not known."""
        self._answer(order)

    def lost(self, host: Host) -> None:
        """It never comes back, and nobody can be blamed for what was on it."""
        self._gone.add(host.number)
        self.lost_with_hosts += self._sold[host.number].machines

    def back(self, host: Host) -> None:
        self._inspect(host)

    def inspect(self) -> None:
        """All hosts that may still be there. Anything may ask at any moment."""
        for host in self._hosts:
            if host.number not in self._gone:
                self._inspect(host)

    def close(self, orders: int) -> None:
        """When nothing is on its way any more."""
        self.inspect()
        open_ = orders - sum(1 for marks in self._marks if marks & _ANSWERED)
        if open_:
            self._breach(Promise.ANSWERED, "orders", f"{open_} got no answer")

    def _inspect(self, host: Host) -> None:
        sold = self._sold[host.number]
        if len(host.machines) != sold.machines:
            what = f"{sold.machines} machines are on it, and its records have {len(host.machines)}"
            self._breach(Promise.KEPT, f"host {host.number}", what)
        cpus, memory_mib = host.cpus - host.cpus_left, host.memory_mib - host.memory_left
        if (cpus, memory_mib) != (sold.cpus, sold.memory_mib):
            what = f"{cpus} cpus and {memory_mib} MiB are taken for {sold.cpus} and {sold.memory_mib} in use"
            self._breach(Promise.SUMS, f"host {host.number}", what)

    def _count(self, host: Host, order: Order, times: int) -> None:
        sold = self._sold[host.number]
        sold.machines += times
        sold.cpus += times * order.cpus
        sold.memory_mib += times * order.memory_mib
        self.machines += times

    def _answer(self, order: Order) -> None:
        if self._marked(order, _ANSWERED):
            self._breach(Promise.ANSWERED, f"order {order.number}", "got a second answer")
        self._mark(order, _ANSWERED)

    def _marked(self, order: Order, mark: int) -> bool:
        return order.number < len(self._marks) and bool(self._marks[order.number] & mark)

    def _mark(self, order: Order, mark: int) -> None:
        if order.number >= len(self._marks):
            self._marks.extend(bytes(order.number + 1024 - len(self._marks)))
        self._marks[order.number] |= mark

    def _unmark(self, order: Order, mark: int) -> None:
        if self._marked(order, mark):
            self._marks[order.number] -= mark

    def _breach(self, promise: Promise, about: str, what: str) -> None:
        """The first ones; where one thing is wrong, many follow."""
        if len(self.breaches) < _MOST:
            self.breaches.append(Breach(promise=promise, about=about, what=what))
