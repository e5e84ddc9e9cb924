"""A network in the memory of one process: transports that lose, delay and part as told. Time is the `Clock`'s.

For simulations and tests of what stands on gossip. Datagrams may be lost and overtake each other; streams lose nothing
and keep their order: what is lost of them comes later, what meets a cut waits for its end.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.abc import ByteStream, TaskGroup, TaskStatus

from hawker.clock import Clock
from hawker.errors import CannotStart, Unavailable

_WINDOW_BYTES = 1 << 20
_AGAIN_S = 0.2
_DIAL_S = 3.0
_MOST_WAITING = 1 << 20


class MemoryNetwork:
    """`loss` is the share of datagrams that vanish, `delay_s` the least and the most that one takes."""

    def __init__(self, clock: Clock, *, loss: float = 0.0, delay_s: tuple[float, float] = (0.0005, 0.002)) -> None:
        self.clock = clock
        self.loss, self.delay_s = loss, delay_s
        self._endpoints: dict[str, MemoryTransport] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: dict[str, float] = {}
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wake, self._wakes_at = anyio.Event(), float("inf")

    def transport(self, address: str) -> "MemoryTransport":
        return MemoryTransport(self, address)

    def cut(self, sender: str, receiver: str) -> None:
        """Lets nothing pass from one address to the other; the way back is not concerned."""
        self._cuts.add((sender, receiver))

    def part(self, left: list[str], right: list[str]) -> None:
        """Lets nothing pass between the two groups."""
        for one in left:
            for other in right:
                self._cuts |= {(one, other), (other, one)}

    def heal(self) -> None:
        self._cuts.clear()

    def slow(self, address: str, seconds: float) -> None:
        """Delays what comes to this address or from it by so many seconds; 0 ends it."""
        self._slow[address] = seconds

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Delivers, until cancelled."""
        task_status.started()
        while True:
            now = self.clock.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                heapq.heappop(self._waiting)[2]()
            self._wake, self._wakes_at = anyio.Event(), self._waiting[0][0] if self._waiting else float("inf")
            with anyio.move_on_after(max(0.0, self._wakes_at - now)):
                await self._wake.wait()

    # For its transports.

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cuts

    def is_lost(self) -> bool:
        return self.loss > 0 and self.clock.random() < self.loss

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        due = self.clock.monotonic() + seconds
        heapq.heappush(self._waiting, (due, next(self._order), action))
        if due < self._wakes_at:
            self._wake.set()

    @property
    def is_full(self) -> bool:
        """Too much is under way: datagrams are lost."""
        return len(self._waiting) >= _MOST_WAITING

    def way_s(self, sender: str, receiver: str) -> float:
        least, most = self.delay_s
        slow_s = self._slow.get(sender, 0.0) + self._slow.get(receiver, 0.0)
        return slow_s + least + (most - least) * self.clock.random()

    def endpoint(self, address: str) -> "MemoryTransport | None":
        return self._endpoints.get(address)

    def bind(self, transport: "MemoryTransport") -> None:
        if transport.address in self._endpoints:
            raise CannotStart(f"somebody is at {transport.address} already")
        self._endpoints[transport.address] = transport

    def unbind(self, transport: "MemoryTransport") -> None:
        self._endpoints.pop(transport.address, None)


class MemoryTransport:
    """The transport of one address of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network, self._address = network, address
        self._on_datagram: Callable[[str, bytes], None] | None = None
        self._accept: Callable[[MemoryStream], None] | None = None

    @property
    def address(self) -> str:
        return self._address

    def send(self, address: str, datagram: bytes) -> None:
        network = self._network
        if network.is_cut(self._address, address) or network.is_lost() or network.is_full:
            return
        network.later(network.way_s(self._address, address), lambda: self._deliver(address, datagram))

    def _deliver(self, address: str, datagram: bytes) -> None:
        endpoint = self._network.endpoint(address)
        if endpoint is not None and endpoint._on_datagram is not None:
            endpoint._on_datagram(self._address, datagram)

    async def dial(self, address: str) -> ByteStream:
        """Opens a stream as TCP does: tries for a while, and knows at once when the host is there and nobody
        listens."""
        network = self._network
        with anyio.move_on_after(_DIAL_S):
            while network.is_cut(self._address, address) or network.is_cut(address, self._address):
                await network.clock.sleep(_AGAIN_S)
            there, back = network.way_s(self._address, address), network.way_s(address, self._address)
            await network.clock.sleep(there + back)
            endpoint = network.endpoint(address)
            if endpoint is None or endpoint._accept is None:
                raise Unavailable(f"cannot connect to {address}: nobody listens there")
            mine, theirs = MemoryStream(network, self._address), MemoryStream(network, address)
            mine.other, theirs.other = theirs, mine
            endpoint._accept(theirs)
            return mine
        raise Unavailable(f"cannot connect to {address}: no answer within {_DIAL_S:g} s")

    async def serve(
        self,
        on_datagram: Callable[[str, bytes], None],
        on_stream: Callable[[ByteStream], Awaitable[None]],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        self._network.bind(self)
        try:
            async with anyio.create_task_group() as tasks:
                self._on_datagram = on_datagram
                self._accept = partial(_accept, tasks, on_stream)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._network.unbind(self)
            self._on_datagram = self._accept = None


def _accept(tasks: TaskGroup, on_stream: Callable[[ByteStream], Awaitable[None]], stream: "MemoryStream") -> None:
    async def serve() -> None:
        await on_stream(stream)

    tasks.start_soon(serve)


class MemoryStream(ByteStream):
    """One end of a stream. `other` is the end it speaks to."""

    other: "MemoryStream"

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network, self._address = network, address
        self._received = bytearray()
        self._ended = self._closed = False
        self._in_flight = 0  # bytes sent that the other end has not taken
        self._under_way: deque[tuple[float, Callable[[], None]]] = deque()
        self._changed = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._received:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._ended:
                raise anyio.EndOfStream
            await self._change()
        data = bytes(self._received[:max_bytes])
        del self._received[: len(data)]
        self.other._in_flight -= len(data)
        self.other._notify()
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        while self._in_flight > _WINDOW_BYTES and not self.other._closed and not self._closed:
            await self._change()
        if self._closed:
            raise anyio.ClosedResourceError
        if self.other._closed:
            raise anyio.BrokenResourceError
        self._in_flight += len(item)
        self._push(lambda: self.other._arrive(bytes(item)))

    async def send_eof(self) -> None:
        self._push(self.other._end)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._push(self.other._end)
            self._notify()
            self.other._notify()

    def _push(self, action: Callable[[], None]) -> None:
        network = self._network
        late_s = _AGAIN_S if network.is_lost() else 0.0
        due = network.clock.monotonic() + network.way_s(self._address, self.other._address) + late_s
        self._under_way.append((due, action))
        if len(self._under_way) == 1:
            network.later(due - network.clock.monotonic(), self._pass)

    def _pass(self) -> None:
        """The first of what is under way arrives; the next one never before it."""
        network = self._network
        if network.is_cut(self._address, self.other._address):
            network.later(_AGAIN_S, self._pass)
            return
        _, action = self._under_way.popleft()
        action()
        if self._under_way:
            network.later(max(0.0, self._under_way[0][0] - network.clock.monotonic()), self._pass)

    def _arrive(self, data: bytes) -> None:
        if not self._closed:
            self._received += data
            self._notify()

    def _end(self) -> None:
        self._ended = True
        self._notify()

    async def _change(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
