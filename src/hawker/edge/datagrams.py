"""UDP: datagrams of a client to a machine, and what the machine says to them, as a flow: the client's address and port,
and the address and port that it sent to. A flow is counted in its machine as a connection is, and it has no end but
silence.

Who sends may have forged where from. So a flow that no machine has answered makes room for others, of the same
organization and of the same address, and is short-lived; an app has so many new flows a second, and few of them wait
for a machine. What has no room is dropped, as networks do: nothing here has a queue.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Protocol, TypeAlias

from hawker.clock import Clock
from hawker.edge.app_figures import AppFigures
from hawker.edge.machine_socket import IN_A_TURN, MOST_BYTES, FirstDatagrams, FlowListener, MachineEnd, MachineSocket
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door, Routes
from hawker.edge.steering import Aim
from hawker.edge.visits import Counters, Spawn, Visit, Visits
from hawker.fair.connections import key_of
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import EDGE_FLOWS, EDGE_FLOWS_OF_ADDRESS
from hawker.feed import EdgeLogLine
from hawker.ids import AppName
from hawker.names import is_outside
from hawker.token_bucket import Allowance, TokenBuckets
from hawker.value_object import ValueObject

UNANSWERED_S, ANSWERED_S = 30.0, 120.0
"""Seconds of silence after which a flow ends, before and after a machine has answered; as in the kernel's tracking of
connections, which lets a machine answer the host for as long."""
NEW_FLOWS = Allowance(1000.0, 2000.0)
"""New flows of an app: 1000 a second, and 2000 at once. A datagram that would begin one more is dropped."""
WAITING = 16
"""The most flows of an app that wait for a machine. One more is dropped: a flood starts no more machines than a client
does."""
_EXTRA_BYTES = 64
_SWEEP_S = 1.0
_IP_PKTINFO = 8  # of linux/in.h; the socket module has no name for it
_LOCAL_V4, _LOCAL_V6 = slice(4, 8), slice(0, 16)  # of the address that a datagram came to, in what the kernel says
_LINK_LOCAL = b"\xfe\x80"

Client: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


class Sender(ValueObject, frozen=True):
    """The client that sends, and the address of the host that it sends to: by both a flow is known, and an answer needs
    both. `local` is as the kernel writes it."""

    client: Client
    local: bytes


class Flow:
    """The flow of one sender. `visit` is None until a machine has been found. Keeps `FlowListener`."""

    def __init__(
        self, flows: "DatagramFlows", receiver: "DatagramDoor", sender: Sender, app: AppName, org: str
    ) -> None:
        self.receiver = receiver
        self.sender = sender
        self.app = app
        self.org = org
        self.address = key_of(sender.client[0])
        self.visit: Visit | None = None
        self.answered = self.is_over = False
        self.heard_at = flows.now()
        self._flows = flows
        self._first = FirstDatagrams()
        self._machine: MachineEnd | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the flow goes on: the machine that it leads to has the same instance still, and runs; for a machine
        of another host its gate says so when it does not."""
        return not self.is_over and (not isinstance(self._machine, MachineSocket) or self._machine.goes_on)

    @property
    def ends_at(self) -> float:
        return self.heard_at + (ANSWERED_S if self.answered else UNANSWERED_S)

    def send(self, data: bytes) -> None:
        """Send a datagram to the machine, now or once there is one."""
        self.heard_at = self._flows.now()
        if not (self._first.keep(data) if self._machine is None else self._machine.send(data)):
            self._flows.dropped(self.app)

    def join(self, visit: Visit, machine: MachineEnd) -> None:
        """Lead the flow to this machine from now on. When no datagram reaches the machine the flow ends."""
        self.visit, self._machine = visit, machine
        self._first.send(machine.send)
        self._first.clear()

    def end(self) -> None:
        """End the flow. A repeated call does no harm."""
        if self.is_over:
            return
        self.is_over = True
        if self._machine is not None:
            self._machine.close()
        self._flows.ended(self)

    def hear(self, data: bytes) -> None:
        if self.is_over:
            return
        self.heard_at = self._flows.now()
        if not self.answered:
            self.answered = True
            self._flows.was_answered(self)
        self.receiver.send(data, self.sender)
        self._flows.sent(self.app, len(data))

    def lose(self, why: ProxyError | None) -> None:
        self.end()
        if why is not None:
            self._flows.tell(self.app, why)


class FlowTable:
    """The number of flows of each organization and of each address. Pure."""

    def __init__(self) -> None:
        self._of_org, self._of_address = Occupancy(EDGE_FLOWS), Occupancy(EDGE_FLOWS_OF_ADDRESS)
        self._unanswered_of_org: dict[str, dict[Flow, None]] = {}  # the oldest first
        self._unanswered_of_address: dict[str, dict[Flow, None]] = {}

    def admit(self, flow: Flow) -> bool:
        """Admit a flow; False when there is no room. An unanswered flow may be ended to make room."""
        if not self._has_room(self._of_org, flow.org, self._unanswered_of_org):
            return False
        if not self._has_room(self._of_address, flow.address, self._unanswered_of_address):
            return False
        self._of_org.enter(flow.org)
        self._of_address.enter(flow.address)
        self._unanswered_of_org.setdefault(flow.org, {})[flow] = None
        self._unanswered_of_address.setdefault(flow.address, {})[flow] = None
        return True

    def answered(self, flow: Flow) -> None:
        """Note that a machine has answered the flow: it is not ended to make room any more."""
        for unanswered, key in (
            (self._unanswered_of_org, flow.org),
            (self._unanswered_of_address, flow.address),
        ):
            flows = unanswered.get(key, {})
            flows.pop(flow, None)
            if not flows:
                unanswered.pop(key, None)

    def release(self, flow: Flow) -> None:
        """Give the flow's place back. To be called once for each flow that was admitted."""
        self.answered(flow)
        self._of_org.leave(flow.org)
        self._of_address.leave(flow.address)

    def _has_room(self, occupancy: Occupancy, key: str, unanswered: dict[str, dict[Flow, None]]) -> bool:
        if occupancy.fits(key):
            return True
        oldest = next(iter(unanswered.get(key, ())), None)
        if oldest is None:
            return False
        oldest.end()
        return occupancy.fits(key)


class Scarce(Protocol):
    def __call__(self) -> bool:
        """Whether the process is short of descriptors or memory."""


class FarFlows(Protocol):
    """The way to machines of other hosts."""

    async def open(self, visit: Visit, began: float, listener: FlowListener) -> MachineEnd:
        """Open the way of a flow to the visit's machine. Raises `ProxyError`."""

    def sweep(self) -> None: ...

    def close(self) -> None: ...


class DatagramFlows:
    """The flows of all doors, for one event loop."""

    machine_end: ClassVar[type[MachineSocket]] = MachineSocket

    def __init__(
        self,
        routes: Routes,
        visits: Visits,
        hops: FarFlows,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        figures: AppFigures,
        scarce: Scarce,
        say: Callable[[EdgeLogLine], None],
    ) -> None:
        self.now = clock.monotonic
        self._routes = routes
        self._visits = visits
        self._hops = hops
        self._spawn = spawn
        self._counters = counters
        self._figures = figures
        self._scarce = scarce
        self._say = say
        self._table = FlowTable()
        self._begun = TokenBuckets(NEW_FLOWS)
        self._waiting: dict[AppName, int] = {}
        self._all: dict[Flow, None] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._all)

    def open(self, door: Door, taker: socket.socket) -> "DatagramDoor":
        """Take the datagrams that come to the door, at this socket."""
        return DatagramDoor(self, door, taker)

    def sweep(self) -> None:
        """To be called now and then: end the flows that have been silent for too long."""
        now = self.now()
        if now < self._swept_at + _SWEEP_S:
            return
        self._swept_at = now
        for flow in [flow for flow in self._all if flow.ends_at <= now]:
            flow.end()
        self._hops.sweep()

    def end(self) -> None:
        """End all flows: a client that sends on is served by the next process."""
        for flow in list(self._all):
            flow.end()
        self._hops.close()

    # What receivers and flows say.

    def take(self, receiver: "DatagramDoor", data: bytes, sender: Sender) -> None:
        """Take a datagram that has come."""
        self._counters.add("datagrams_in")
        flow = receiver.flows.get(sender)
        if flow is not None and not flow.goes_on:
            flow.end()
            flow = None
        if flow is None:
            flow = self._begin(receiver, sender)
        if flow is not None:
            self._figures.received(flow.app, len(data))
            flow.send(data)

    def ended(self, flow: Flow) -> None:
        self._all.pop(flow, None)
        flow.receiver.flows.pop(flow.sender, None)
        self._table.release(flow)
        if flow.visit is not None:
            self._visits.end(flow.visit)

    def was_answered(self, flow: Flow) -> None:
        self._table.answered(flow)

    def dropped(self, app: AppName | None) -> None:
        self._counters.add("datagrams_dropped", app=app)

    def sent(self, app: AppName, size: int) -> None:
        self._counters.add("datagrams_out")
        self._figures.sent(app, size)

    def _begin(self, receiver: "DatagramDoor", sender: Sender) -> Flow | None:
        """None where there is nobody, or no room, and for whom a private address is not: the host's packet filter drops
        what he sends before it is here."""
        if is_outside(receiver.door.address, str(sender.client[0])):
            self._counters.add("outsiders_refused")
            return None
        app = self._routes.first_app(receiver.door)
        if (
            app is None
            or self._waiting.get(app, 0) >= WAITING
            or not self._begun.take(app.encode(), self.now())
            or self._scarce()
        ):
            self.dropped(app)
            return None
        flow = Flow(self, receiver, sender, app, self._routes.owner(app))
        if not self._table.admit(flow):
            self.dropped(app)
            return None
        self._counters.add("flows", app=app)
        self._all[flow] = None
        receiver.flows[sender] = flow
        self._waiting[app] = self._waiting.get(app, 0) + 1
        self._spawn(self._find, flow)
        return flow

    async def _find(self, flow: Flow) -> None:
        try:
            visit, machine = await self._reach(flow)
        except ProxyError as error:
            self.tell(flow.app, error)
            flow.end()
            return
        except BaseException:
            flow.end()
            raise
        finally:
            self._waited(flow.app)
        visit.last()
        if flow.is_over:
            machine.close()
            self._visits.end(visit)
        else:
            flow.join(visit, machine)

    async def _reach(self, flow: Flow) -> tuple[Visit, MachineEnd]:
        """What another host's gate refuses goes to another machine. Raises `ProxyError`."""
        began, cause = self.now(), None
        while True:
            visit = await self._visits.begin(Aim(flow.receiver.door, flow.app), began, cause)
            try:
                if visit.target.is_near:
                    return visit, self.machine_end(visit, flow)
                return visit, await self._hops.open(visit, began, flow)
            except OSError as error:
                self._visits.end(visit)
                raise ProxyError(Code.PC01, known=f"machine {visit.gate.route.id} has no address ({error})") from error
            except ProxyError as error:
                self._visits.end(visit)
                cause = error
            except BaseException:
                self._visits.end(visit)
                raise

    def _waited(self, app: AppName) -> None:
        left = self._waiting.pop(app) - 1
        if left:
            self._waiting[app] = left

    def tell(self, app: AppName, error: ProxyError) -> None:
        self._counters.add(f"errors_{error.code.name}", app=app)
        self._say(EdgeLogLine(app=app, code=error.code.name, text=error.whole))


class DatagramDoor:
    """The socket of one door, and the flows that come by it. Answers leave from the address that the client sent to."""

    def __init__(self, flows: DatagramFlows, door: Door, taker: socket.socket) -> None:
        self.door = door
        self.flows: dict[Sender, Flow] = {}
        self._all = flows
        self._socket = taker
        self._is_v6 = taker.family == socket.AF_INET6
        level, option = (
            (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO) if self._is_v6 else (socket.IPPROTO_IP, _IP_PKTINFO)
        )
        taker.setblocking(False)
        taker.setsockopt(level, option, 1)
        asyncio.get_running_loop().add_reader(taker, self._read)

    def rest(self) -> None:
        """Read no datagrams at this socket any more: the next process reads them. Answers are still sent."""
        asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        self.rest()
        for flow in list(self.flows.values()):
            flow.end()
        self._socket.close()

    def send(self, data: bytes, sender: Sender) -> None:
        """Send a datagram to the client; dropped where the host cannot send it now."""
        if self._is_v6:
            index = sender.client[3] if len(sender.client) == 4 and sender.local.startswith(_LINK_LOCAL) else 0
            extra = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, sender.local + index.to_bytes(4, "little"))
        else:
            extra = (socket.IPPROTO_IP, _IP_PKTINFO, bytes(4) + sender.local + bytes(4))
        with suppress(OSError):
            self._socket.sendmsg([data], [extra], 0, sender.client)

    def _read(self) -> None:
        for _ in range(IN_A_TURN):
            try:
                data, extra, _, client = self._socket.recvmsg(MOST_BYTES, _EXTRA_BYTES)
            except OSError:
                return
            local = next((content for level, kind, content in extra if self._says_where(level, kind)), b"")
            if local:
                self._all.take(self, data, Sender(client, local[_LOCAL_V6 if self._is_v6 else _LOCAL_V4]))

    def _says_where(self, level: int, kind: int) -> bool:
        wanted = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) if self._is_v6 else (socket.IPPROTO_IP, _IP_PKTINFO)
        return (level, kind) == wanted
