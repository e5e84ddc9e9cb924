"""What a scheduler believes is left on every host, with quick answers to two questions that a plain scheduler answers
by a scan: which is the first host with room, and which is the emptiest of those.

A tournament tree: each node knows the most that is left below it. The model still charges the scan (`looked`).
"""

import math
from collections.abc import Sequence

from bench.schedulers.host import Host
from bench.schedulers.workload import Order


class View:
    def __init__(self, hosts: Sequence[Host]) -> None:
        self._size = 1 << max(0, math.ceil(math.log2(max(1, len(hosts)))))
        self._cpus = [-1] * (2 * self._size)
        self._memory = [-1] * (2 * self._size)
        self._empty = [-1.0] * (2 * self._size)
        self._capacity = [(host.cpus, host.memory_mib) for host in hosts]
        self._left = [(host.cpus, host.memory_mib) for host in hosts]
        self._up = [True] * len(hosts)
        self.count = len(hosts)
        for number in range(len(hosts)):
            self._write(number)

    def take(self, number: int, order: Order) -> None:
        self.change(number, -order.cpus, -order.memory_mib)

    def give(self, number: int, order: Order) -> None:
        self.change(number, order.cpus, order.memory_mib)

    def change(self, number: int, cpus: int, memory_mib: int) -> None:
        left = self._left[number]
        self._left[number] = (left[0] + cpus, left[1] + memory_mib)
        self._write(number)

    def note(self, host: Host) -> None:
        """A host that is down has no room. One that is back says what its records leave."""
        if host.up and not self._up[host.number]:
            self.correct(host)
        self._up[host.number] = host.up
        self._write(host.number)

    def correct(self, host: Host) -> None:
        """It said itself what is left, because it was believed to have more."""
        self._left[host.number] = (host.cpus_left, host.memory_left)
        self._write(host.number)

    def fits(self, number: int, order: Order) -> bool:
        return order.cpus <= self._cpus[self._size + number] and order.memory_mib <= self._memory[self._size + number]

    def left(self, number: int) -> tuple[int, int]:
        """Cpus and MiB; nothing on a host that is down."""
        return self._cpus[self._size + number], self._memory[self._size + number]

    def first(self, order: Order) -> int | None:
        """The host of the lowest number that has room."""
        return self._first(1, order)

    def emptiest(self, order: Order) -> int | None:
        """The host with the largest share left among those that have room; of equals, the lowest number."""
        return self._emptiest(1, order, -1.0)[1]

    def _first(self, node: int, order: Order) -> int | None:
        if order.cpus > self._cpus[node] or order.memory_mib > self._memory[node]:
            return None
        if node >= self._size:
            return node - self._size
        found = self._first(2 * node, order)
        return found if found is not None else self._first(2 * node + 1, order)

    def _emptiest(self, node: int, order: Order, best: float) -> tuple[float, int | None]:
        """The best below this node, when it beats `best`."""
        if self._empty[node] <= best or order.cpus > self._cpus[node] or order.memory_mib > self._memory[node]:
            return best, None
        if node >= self._size:
            return self._empty[node], node - self._size
        left, right = 2 * node, 2 * node + 1
        best, found = self._emptiest(left, order, best)
        best, other = self._emptiest(right, order, best)
        return best, found if other is None else other

    def _write(self, number: int) -> None:
        cpus, memory_mib = self._left[number]
        node = self._size + number
        if self._up[number]:
            capacity = self._capacity[number]
            empty = min(cpus / capacity[0], memory_mib / capacity[1])
        else:
            cpus = memory_mib = -1
            empty = -1.0
        self._cpus[node], self._memory[node], self._empty[node] = cpus, memory_mib, empty
        self._lift(node >> 1)

    def _lift(self, node: int) -> None:
        cpus, memory, empty = self._cpus, self._memory, self._empty
        while node:
            left, right = 2 * node, 2 * node + 1
            cpus[node] = max(cpus[left], cpus[right])
            memory[node] = max(memory[left], memory[right])
            empty[node] = max(empty[left], empty[right])
            node >>= 1
