"""Collecting bids: many nodes at once, with a short deadline for all of them.

Asks that wait for the same node travel together: while one call is under way there, the next ones gather and go as one.
So a broker under load makes fewer calls, not more. An ask is written once, whoever reads it.
"""

from collections import deque
from collections.abc import Sequence

import anyio
import msgspec
from anyio.abc import TaskGroup

from hawker.api.codec import encode_json
from hawker.api.contract.market import QUOTE, Bid, BidAsk, BidsRequest
from hawker.api.directory import Peers
from hawker.errors import Fault, HawkerError
from hawker.ids import NodeId

BROKER = "broker"
SILENT = "no answer in time"
_TOGETHER = 32
_TOGETHER_BYTES = 512 * 1024
_CALLS_AT_ONCE = 1  # to one node


class _Round:
    """One collecting: what is still to come, and where the calls that serve it run."""

    def __init__(self, ask: msgspec.Raw, nodes: Sequence[NodeId], tasks: TaskGroup, deadline_s: float) -> None:
        self.ask = ask
        self.size = len(bytes(ask))
        self.tasks = tasks
        self.deadline_s = deadline_s
        self.found: dict[str, Bid | str] = {}
        self.over = False
        self.done = anyio.Event()
        self._left = len(nodes)
        if not nodes:
            self.done.set()

    def settle(self, node: NodeId, bid: Bid | str) -> None:
        if node not in self.found:
            self.found[node] = bid
            self._left -= 1
            if not self._left:
                self.done.set()

    def wants(self, node: NodeId) -> bool:
        return not self.over and node not in self.found


class _Queue:
    """Who waits for a node, and how many calls are under way there."""

    def __init__(self) -> None:
        self.waiting: deque[_Round] = deque()
        self.calls = 0


class Bidding:
    """Keeps nothing but what is under way."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._queues: dict[NodeId, _Queue] = {}

    @property
    def under_way(self) -> int:
        """The nodes that someone waits for."""
        return len(self._queues)

    async def collect(self, nodes: Sequence[NodeId], ask: BidAsk, deadline_s: float) -> dict[str, Bid | str]:
        """What each node bid, or why nothing was heard of it."""
        written = msgspec.Raw(encode_json(ask))
        async with anyio.create_task_group() as tasks:
            asked = _Round(written, nodes, tasks, deadline_s)
            try:
                with anyio.move_on_after(deadline_s):
                    for node in nodes:
                        self._enter(node, asked)
                    await asked.done.wait()
            finally:
                asked.over = True
                tasks.cancel_scope.cancel()
        return {node: asked.found.get(node, SILENT) for node in nodes}

    def _enter(self, node: NodeId, asked: _Round) -> None:
        queue = self._queues.setdefault(node, _Queue())
        queue.waiting.append(asked)
        if queue.calls < _CALLS_AT_ONCE:
            queue.calls += 1
            asked.tasks.start_soon(self._call, node, queue, asked)

    async def _call(self, node: NodeId, queue: _Queue, owner: _Round) -> None:
        """Runs in the task group of one whom it serves. If that one gives up, the others are asked for anew."""
        together = _taken(node, queue.waiting) if owner in queue.waiting else []
        try:
            if together:
                await self._settle(node, together, owner.deadline_s)
        finally:
            queue.waiting.extendleft(each for each in reversed(together) if each.wants(node))
            self._hand_on(node, queue)

    async def _settle(self, node: NodeId, together: list[_Round], deadline_s: float) -> None:
        try:
            caller = self._peers.caller(node, behalf=BROKER)
            asks = BidsRequest(asks=tuple(each.ask for each in together))
            answer = await caller.call(QUOTE, body=asks, timeout_s=deadline_s)
            if len(answer.bids) != len(together):
                raise Fault(f"{len(answer.bids)} bids came for {len(together)}")
        except HawkerError as error:
            for each in together:
                each.settle(node, str(error))
            return
        for each, bid in zip(together, answer.bids, strict=True):
            each.settle(node, bid)

    def _hand_on(self, node: NodeId, queue: _Queue) -> None:
        """The next call runs in the task group of whoever has waited longest."""
        while queue.waiting and not queue.waiting[0].wants(node):
            queue.waiting.popleft()
        if queue.waiting:
            owner = queue.waiting[0]
            owner.tasks.start_soon(self._call, node, queue, owner)
            return
        queue.calls -= 1
        if not queue.calls and self._queues.get(node) is queue:
            del self._queues[node]


def _taken(node: NodeId, waiting: deque[_Round]) -> list[_Round]:
    """As many as go together, at least one."""
    together: list[_Round] = []
    size = 0
    while waiting and len(together) < _TOGETHER:
        size += waiting[0].size
        if together and size > _TOGETHER_BYTES:
            break
        each = waiting.popleft()
        if each.wants(node):
            together.append(each)
    return together
