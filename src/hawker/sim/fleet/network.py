"""Calls between nodes, and from clients to brokers: handlers are called in process, and the network between loses
requests and answers, delays them, refuses connections and is cut. What a node was asked runs in that node's life and
dies with it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from hawker.api.failure import ConnectionLost, Overdue, Unreachable
from hawker.api.handlers import Handlers, Written
from hawker.api.in_process import InProcessCaller
from hawker.errors import HawkerError
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import Chance
from hawker.value_object import ValueObject

CONNECT_S = 2.0
LATE_S = 8.0
_LOOK_S = 0.1
_WAY_S = (0.0005, 0.002)


class SimEndpoint(ValueObject, frozen=True, kw_only=True):
    """Who answers in one life of a daemon. What is asked runs in `tasks`; `over` is set when the life ends."""

    clock: LoopClock
    handlers: Handlers
    tasks: TaskGroup
    written: Written | None = None
    over: anyio.Event = msgspec.field(default_factory=anyio.Event)


class PassingCall(ValueObject, frozen=True, kw_only=True):
    """A call that passes: `before` it is served and after."""

    route: str
    """The name of the call."""
    sender: NodeId | None
    receiver: NodeId
    before: bool


class NetworkCut(ValueObject, frozen=True, eq=False):
    """Nothing passes from these to those; nor back, if it is cut `both` ways."""

    these: frozenset[NodeId]
    those: frozenset[NodeId]
    both: bool = True

    def between(self, sender: NodeId, receiver: NodeId) -> bool:
        there = sender in self.these and receiver in self.those
        return there or (self.both and sender in self.those and receiver in self.these)


class CallNetwork:
    """Doors that are open: of workers for their `peers`, and of `brokers` for clients. `lost` and `mute` are the shares
    of requests and of answers that are lost, `late` the names of routes whose next call is late, by `late_s` at most;
    `hears` is told of each call that passes, and may end a life."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.chance = Chance(clock)
        self.peers: dict[NodeId, SimEndpoint] = {}
        self.brokers: dict[NodeId, SimEndpoint] = {}
        self.unplugged: set[NodeId] = set()
        self.cuts: list[NetworkCut] = []
        self.lost = self.mute = 0.0
        self.slow: dict[NodeId, float] = {}
        self.hears: Callable[[PassingCall], None] = lambda passing: None
        self.calls = 0
        self.late: list[str] = []
        self.late_s = LATE_S
        self.stragglers: list[tuple[float, Callable[[], _Exchange]]] = []

    def is_cut(self, sender: NodeId | None, receiver: NodeId) -> bool:
        return sender is not None and any(cut.between(sender, receiver) for cut in self.cuts)

    async def call(
        self, sender: NodeId | None, receiver: NodeId, behalf: str, route: Any, given: dict[str, Any]
    ) -> Any:
        limit_s = given.pop("timeout_s", None) or route.timeout_s
        self.calls += 1
        with anyio.move_on_after(limit_s):
            await self._reach(sender, receiver)
            await self._way(sender, receiver)
            made = partial(self._begin, sender, receiver, behalf, route, {**given, "timeout_s": limit_s})
            if route.name in self.late:
                self.late.remove(route.name)
                self._straggle(made)
                await self._no_more(receiver)
            if self.chance.happens(self.lost):
                if self.chance.happens(0.5):
                    self._straggle(made)
                await self._no_more(receiver)
            exchange = made()
            await exchange.wait()
            self.hears(PassingCall(route=route.name, sender=sender, receiver=receiver, before=False))
            await self._way(receiver, sender)
            if sender is not None and self.is_cut(receiver, sender):
                await anyio.sleep_forever()
            if self.chance.happens(self.mute):
                await self._no_more(receiver)
            return exchange.answer()
        raise Overdue(f"no answer from {receiver} within {limit_s:g} s")

    def _begin(
        self, sender: NodeId | None, receiver: NodeId, behalf: str, route: Any, given: dict[str, Any]
    ) -> "_Exchange":
        """Raises `ConnectionLost`."""
        gate = self._doors(sender).get(receiver)
        if gate is None:
            raise ConnectionLost(f"the connection to {receiver} was lost")
        exchange = _Exchange(gate, behalf, route, given)
        self.hears(PassingCall(route=route.name, sender=sender, receiver=receiver, before=True))
        if not gate.over.is_set():
            gate.tasks.start_soon(exchange.serve)
        return exchange

    def _straggle(self, begin: "Callable[[], _Exchange]") -> None:
        """It comes all the same, when nobody waits for it any more."""
        self.stragglers.append((self.clock.monotonic() + self.clock.random() * self.late_s, begin))

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Brings what is late, until cancelled."""
        task_status.started()
        while True:
            await self.clock.sleep(_LOOK_S)
            due = [begin for at, begin in self.stragglers if at <= self.clock.monotonic()]
            self.stragglers = [(at, begin) for at, begin in self.stragglers if at > self.clock.monotonic()]
            for begin in due:
                with suppress(ConnectionLost):
                    begin()

    async def _reach(self, sender: NodeId | None, receiver: NodeId) -> None:
        cut = self.is_cut(sender, receiver)
        away = receiver in self.unplugged or cut or (sender is not None and self.is_cut(receiver, sender))
        if away:
            if self.chance.happens(0.5):
                await self.clock.sleep(CONNECT_S)
                raise Unreachable(f"cannot reach {receiver}")
            if cut or receiver in self.unplugged:
                await anyio.sleep_forever()  # it went into a connection that there was
            return
        if receiver not in self._doors(sender):
            await self._way(sender, receiver)
            raise Unreachable(f"cannot reach {receiver}: nobody listens")

    async def _no_more(self, receiver: NodeId) -> None:
        """Nothing more is heard of the call, or that the connection was lost."""
        if self.chance.happens(0.5):
            await anyio.sleep_forever()
        raise ConnectionLost(f"the connection to {receiver} was lost")

    async def _way(self, one: NodeId | None, other: NodeId | None) -> None:
        least, most = _WAY_S
        slow_s = sum(self.slow.get(each, 0.0) for each in (one, other) if each is not None)
        await self.clock.sleep(slow_s + least + (most - least) * self.clock.random())

    def _doors(self, sender: NodeId | None) -> dict[NodeId, SimEndpoint]:
        return self.brokers if sender is None else self.peers


class _Exchange:
    """A call at the node that answers it."""

    def __init__(self, gate: SimEndpoint, behalf: str, route: Any, given: dict[str, Any]) -> None:
        self._gate, self._behalf, self._route, self._given = gate, behalf, route, given
        self._done = anyio.Event()
        self._answer: Any = None
        self._error: HawkerError | None = None
        self._served = False

    async def serve(self) -> None:
        gate = self._gate
        try:
            caller = InProcessCaller(gate.handlers, gate.clock, self._behalf, gate.written)
            self._answer = await caller.call(self._route, **self._given)
            self._served = True
        except HawkerError as error:
            self._error = error
            self._served = True
        finally:
            self._done.set()

    async def wait(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ends_with_the_door, tasks.cancel_scope)
            await self._done.wait()
            tasks.cancel_scope.cancel()

    async def _ends_with_the_door(self, scope: anyio.CancelScope) -> None:
        await self._gate.over.wait()
        scope.cancel()

    def answer(self) -> Any:
        if not self._served:
            raise ConnectionLost("the connection was lost: the node went down")
        if self._error is not None:
            raise self._error
        return self._answer


class SimPeers:
    """Keeps `Peers` for one node."""

    def __init__(self, call_network: CallNetwork, me: NodeId) -> None:
        self._call_network, self._me = call_network, me

    def caller(self, node_id: NodeId, *, behalf: str) -> "SimCaller":
        return SimCaller(self._call_network, self._me, node_id, behalf)


class SimCaller:
    """The part of a `Caller` that calls; streams and uploads are not played."""

    def __init__(self, call_network: CallNetwork, sender: NodeId | None, receiver: NodeId, behalf: str) -> None:
        self._call_network, self._sender, self._receiver, self._behalf = call_network, sender, receiver, behalf

    async def call(self, route: Any, **given: Any) -> Any:
        return await self._call_network.call(self._sender, self._receiver, self._behalf, route, given)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} between nodes is not played")
