"""Asking many nodes at once: so many at a time, each for so long, and the rest counts where some do not answer. Who
did not is told by region.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

import anyio

from hawker.api.caller import Caller
from hawker.api.directory import Directory, Peers
from hawker.api.failure import ConnectionLost, Overdue, Unreachable
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NotFound, RateLimited, Unauthorized, Unavailable
from hawker.ids import NodeId
from hawker.value_object import ValueObject


class Reach:
    """The way to other nodes. Only the owner of a thing is ever called for it, and the API between nodes passes nothing
    on: no call goes in circles."""

    def __init__(self, directory: Directory, peers: Peers) -> None:
        self.directory = directory
        self._peers = peers

    def caller(self, node_id: NodeId, behalf: str) -> Caller:
        """The caller for a node. Raises `Unavailable` when the node is down, not heard of yet or not known."""
        node = self.directory.node(node_id)
        if node is not None and node.unheard:
            raise Unavailable(
                f"{self.named(node_id)} has not been heard of since this broker began: nothing was done."
                " Try again in a moment. `hawker node forget` is for one that never comes back"
            )
        if node is not None and not node.alive:
            raise Unavailable(
                f"{self.named(node_id)} is down: nothing was done. What it has is there when it is back;"
                " `hawker node forget` is for one that never comes back"
            )
        return self._peers.caller(node_id, behalf=behalf)

    def alive(self, node_id: NodeId) -> bool:
        node = self.directory.node(node_id)
        return node is not None and node.alive

    def knows(self, node_id: NodeId) -> bool:
        """Whether there is a way to it, be it alive or not."""
        try:
            self._peers.caller(node_id, behalf="")
        except Unavailable:
            return False
        return True

    def region_of(self, node_id: NodeId) -> str:
        node = self.directory.node(node_id)
        return "" if node is None else node.region

    def named(self, node_id: NodeId) -> str:
        region = self.region_of(node_id)
        return f"node {node_id} in region {region}" if region else f"node {node_id}"

    @contextmanager
    def errors(self, node_id: NodeId, *, harmless: bool) -> Iterator[None]:
        """A context for a call to a node: what the node itself says passes as it is. `harmless`: the call changes
        nothing, so it may be made again."""
        try:
            yield
        except Unreachable as error:
            raise Unavailable(f"{self.named(node_id)} cannot be reached: nothing was done") from error
        except Overdue as error:
            if harmless:
                raise DeadlineExceeded(f"no answer from {self.named(node_id)} in time") from error
            raise Fault(f"no answer from {self.named(node_id)} in time: the call may have taken effect") from error
        except ConnectionLost as error:
            if harmless:
                raise Unavailable(f"the connection to {self.named(node_id)} was lost") from error
            text = f"the connection to {self.named(node_id)} was lost: the call may have taken effect"
            raise Fault(text) from error
        except Unauthorized as error:
            text = f"{self.named(node_id)} does not know this broker's key of the cluster: nothing was done"
            raise Unavailable(text) from error


# Reaching a node: at once an error that names it where it is known to be down, and what goes wrong on the way in
# words that say whether the call may have taken effect.

T = TypeVar("T")

AT_ONCE = 16
EACH_S = 5.0
ALL_S = 20.0
_SILENT = (Unavailable, DeadlineExceeded, Fault, RateLimited)


class Asked(ValueObject, Generic[T], frozen=True, kw_only=True):
    """`answers` in the order in which the nodes were given; `silent` are those that could not be asked or did not
    answer, each with why."""

    answers: tuple[tuple[NodeId, T], ...]
    silent: tuple[tuple[NodeId, HawkerError], ...]
    regions: tuple[str, ...]  # those of the silent nodes that are known, sorted, each once

    def some(self, what: str) -> None:
        """Checks that somebody answered. Raises `Unavailable` when nobody answered and somebody should have."""
        if not self.answers and self.silent:
            reasons = "; ".join(str(error) for _, error in self.silent[:3])
            raise Unavailable(f"{what} cannot be asked for: {reasons}")


class FanOutLimits(ValueObject, frozen=True, kw_only=True):
    """The limits of a round: how many nodes are asked at a time, for how long each and all together."""

    at_once: int = AT_ONCE  # nodes asked at a time, 1 or more; the others wait their turn
    each_s: float = EACH_S  # seconds for one node, more than 0; then it is silent
    all_s: float = ALL_S  # seconds for all together, more than 0; who is left then is silent


class FanOut:
    def __init__(self, reach: Reach, patience: FanOutLimits | None = None) -> None:
        self.reach = reach
        self._patience = patience or FanOutLimits()

    async def every(self, nodes: Iterable[NodeId], behalf: str, ask: Callable[[Caller], Awaitable[T]]) -> Asked[T]:
        """Asks every node the same. `ask` reads only. A node that says "not found" has nothing to say; what else it
        refuses is raised, once all were asked."""
        return await self.each(dict.fromkeys(nodes, ask), behalf)

    async def each(self, asks: Mapping[NodeId, Callable[[Caller], Awaitable[T]]], behalf: str) -> Asked[T]:
        """Asks each node its own question, else as `every`."""
        asked = tuple(asks)
        round_ = _Round(self.reach, behalf, asks, self._patience)
        with anyio.move_on_after(self._patience.all_s):
            async with anyio.create_task_group() as tasks:
                for node in asked:
                    tasks.start_soon(round_.one, node)
        return round_.told(asked)

    async def first(self, nodes: Iterable[NodeId], behalf: str, ask: Callable[[Caller], Awaitable[T]]) -> Asked[T]:
        """Asks nodes as `every` until one answers: `answers` has one at most."""
        asked = tuple(dict.fromkeys(nodes))
        round_ = _Round(self.reach, behalf, dict.fromkeys(asked, ask), self._patience, enough=1)
        with anyio.move_on_after(self._patience.all_s):
            async with anyio.create_task_group() as tasks:
                round_.scope = tasks.cancel_scope
                for node in asked:
                    tasks.start_soon(round_.one, node)
        return round_.told(asked)


class _Round(Generic[T]):
    def __init__(
        self,
        reach: Reach,
        behalf: str,
        asks: Mapping[NodeId, Callable[[Caller], Awaitable[T]]],
        patience: FanOutLimits,
        enough: int | None = None,
    ) -> None:
        self._reach, self._behalf, self._asks, self._patience = reach, behalf, asks, patience
        self._turns = anyio.CapacityLimiter(patience.at_once)
        self._enough = enough
        self.scope: anyio.CancelScope | None = None
        self._answers: dict[NodeId, T] = {}
        self._silent: dict[NodeId, HawkerError] = {}
        self._refused: dict[NodeId, HawkerError] = {}
        self._absent: set[NodeId] = set()

    async def one(self, node: NodeId) -> None:
        try:
            async with self._turns:
                self._answers[node] = await self._asked(node)
        except NotFound:
            self._absent.add(node)
        except _SILENT as error:
            self._silent[node] = error
        except HawkerError as error:
            self._refused[node] = error
        if self._enough is not None and len(self._answers) >= self._enough and self.scope is not None:
            self.scope.cancel()

    def told(self, asked: tuple[NodeId, ...]) -> Asked[T]:
        """The answers of the nodes. Raises what a node refused."""
        for error in self._refused.values():
            raise error
        done = self._enough is not None and len(self._answers) >= self._enough
        for node in asked:
            if not done and node not in self._answers and node not in self._absent:
                late = Unavailable(f"no answer from {self._reach.named(node)} in time")
                self._silent.setdefault(node, late)
        regions = sorted({self._reach.region_of(node) for node in self._silent} - {""})
        return Asked(
            answers=tuple((node, self._answers[node]) for node in asked if node in self._answers),
            silent=tuple((node, self._silent[node]) for node in asked if node in self._silent),
            regions=tuple(regions),
        )

    async def _asked(self, node: NodeId) -> T:
        caller = self._reach.caller(node, self._behalf)
        with self._reach.errors(node, harmless=True):
            with anyio.move_on_after(self._patience.each_s):
                return await self._asks[node](caller)
            raise Unavailable(f"no answer from {self._reach.named(node)} within {self._patience.each_s:g} s")
