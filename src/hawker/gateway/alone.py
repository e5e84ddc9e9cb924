"""A fleet of one: the directory and the peers of a broker beside a worker that knows no others."""

from collections.abc import Callable, Sequence

from hawker.api.caller import Caller
from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.ids import AppName, NodeId


class OneNode:
    """Keeps `Directory`. `node` says how the one node is now. It is taken to know every app, machine and volume: it
    answers itself for those that it does not have."""

    def __init__(self, node: Callable[[], Node]) -> None:
        self._node = node

    @property
    def region(self) -> str:
        return self._node().region

    def nodes(self) -> Sequence[Node]:
        return (self._node(),)

    def node(self, node_id: NodeId) -> Node | None:
        node = self._node()
        return node if node.id == node_id else None

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return self._node().id

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return self._node().id

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return (self._node().id,)

    def home_of_app(self, app: AppName) -> NodeId | None:
        return self._node().id

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return True


class NoPeers:
    """Keeps `Peers`: the worker's own handlers, and nobody else."""

    def __init__(self, node_id: NodeId, handlers: Handlers, clock: Clock) -> None:
        self._node_id = node_id
        self._handlers = handlers
        self._clock = clock

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        if node_id != self._node_id:
            raise Unavailable(f"this node knows no node {node_id}")
        return InProcessCaller(self._handlers, self._clock, behalf)
