"""A host: what it has, the machines in its records, the images that it holds. It alone says whether an order fits.

Its room is the sum of its records. It remembers what was cancelled, and refuses an order that comes after its cancel.
"""

from bench.schedulers.workload import Order

_CANCELLED = 1000


class Host:
    """`up` is how it is, which others learn later. `cpus` are shared cpus as they are sold, oversold by the ratio of
    the node's settings."""

    __slots__ = (
        "_cancelled",
        "_pulls_end_s",
        "apps",
        "bandwidth_mib_s",
        "cache_mib",
        "cpus",
        "cpus_left",
        "held_mib",
        "images",
        "machines",
        "memory_left",
        "memory_mib",
        "number",
        "overdue",
        "pulled_mib",
        "up",
    )

    def __init__(self, number: int, *, cpus: int, memory_mib: int, bandwidth_mib_s: float, cache_mib: int) -> None:
        self.number = number
        self.cpus = self.cpus_left = cpus
        self.memory_mib = self.memory_left = memory_mib
        self.bandwidth_mib_s = bandwidth_mib_s
        self.cache_mib = cache_mib
        self.up = True
        self.machines: dict[int, Order] = {}
        self.apps: dict[int, int] = {}
        self.overdue: list[Order] = []  # ended while the host was down
        self.images: dict[int, tuple[int, float]] = {}  # the one used last comes last: MiB, and when it is here
        self.held_mib = self.pulled_mib = 0
        self._pulls_end_s = 0.0
        self._cancelled: dict[int, None] = {}

    def fits(self, order: Order) -> bool:
        return order.cpus <= self.cpus_left and order.memory_mib <= self.memory_left

    def busy(self) -> float:
        """The share of its scarcest resource that is sold."""
        return 1 - min(self.cpus_left / self.cpus, self.memory_left / self.memory_mib)

    def admit(self, order: Order, ticket: int) -> bool:
        """Whether it takes the order now. `ticket` is that of the message, by which it can be cancelled."""
        if order.number in self.machines or self.has_cancelled(ticket) or not self.fits(order):
            return False
        self.take(order)
        return True

    def take(self, order: Order) -> None:
        self.machines[order.number] = order
        self.apps[order.image] = self.apps.get(order.image, 0) + 1
        self.cpus_left -= order.cpus
        self.memory_left -= order.memory_mib

    def release(self, order: Order) -> None:
        """The machine is gone, and its room is free. Nothing where there is none."""
        if self.machines.pop(order.number, None) is None:
            return
        self.apps[order.image] -= 1
        if not self.apps[order.image]:
            del self.apps[order.image]
        self.cpus_left += order.cpus
        self.memory_left += order.memory_mib

    def cancel(self, order: Order, ticket: int) -> None:
        """Whether that message was obeyed or not: it is not now, and will not be."""
        self.release(order)
        self._cancelled[ticket] = None
        if len(self._cancelled) > _CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]

    def has_cancelled(self, ticket: int) -> bool:
        return ticket in self._cancelled

    def lacks_mib(self, order: Order) -> int:
        return 0 if order.image in self.images else order.image_mib

    def pull(self, order: Order, now: float) -> float:
        """When the image is here. Images come one after another; the one that was not used for longest makes room."""
        held = self.images.pop(order.image, None)
        if held is None:
            self._make_room(order.image_mib)
            self._pulls_end_s = max(now, self._pulls_end_s) + order.image_mib / self.bandwidth_mib_s
            held = (order.image_mib, self._pulls_end_s)
            self.pulled_mib += order.image_mib
            self.held_mib += order.image_mib
        self.images[order.image] = held
        return max(now, held[1])

    def _make_room(self, mib: int) -> None:
        while self.images and self.held_mib + mib > self.cache_mib:
            oldest = next(iter(self.images))
            self.held_mib -= self.images.pop(oldest)[0]
