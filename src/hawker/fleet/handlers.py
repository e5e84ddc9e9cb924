"""Answers about the cluster: joining it, its nodes, its keys. A node that is alone is the one node there is."""

from collections.abc import Callable, Mapping

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.cluster import (
    ADD_KEY,
    CORDON_NODE,
    DRAIN_NODE,
    FORGET_NODE,
    GET_NODE,
    JOIN_CLUSTER,
    LIST_KEYS,
    LIST_NODES,
    MEMBER_FATE,
    REMOVE_KEY,
    UNCORDON_NODE,
    USE_KEY,
    AddKeyRequest,
    ClusterKeys,
    DrainAnswer,
    FleetNode,
    FleetNodes,
    ForgetQuery,
    ForgottenNode,
    JoinAnswer,
    JoinRequest,
    KeyParams,
    MemberFate,
    NodeMachine,
    NodeParams,
)
from hawker.api.contract.node import NODE_INFO, NodeInfo
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import Forbidden, HawkerError, NotFound, WrongState
from hawker.fleet.membership import Fleet
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.record.machine import MACHINES
from hawker.record.node import NODE, NodeRecord
from hawker.store.contract import Store, Tx

_ASK_S = 3.0
_ALONE = "this node is in no cluster: start it with `hawker up --advertise HOST` to begin one"


class ClusterHandlers:
    """`node_info` is what the node's worker says of it; `fleet` is None on a node that is alone."""

    def __init__(
        self,
        node: NodeRecord,
        store: Store,
        labels: Mapping[str, str],
        node_info: Callable[[], NodeInfo],
        fleet: Fleet | None,
    ) -> None:
        self._node = node
        self._store = store
        self._labels = labels
        self._node_info = node_info
        self._fleet = fleet

    def bind(self, handlers: Handlers) -> None:
        handlers.on(JOIN_CLUSTER, self.join)
        handlers.on(LIST_NODES, self.list)
        handlers.on(GET_NODE, self.get)
        handlers.on(CORDON_NODE, self.cordon)
        handlers.on(UNCORDON_NODE, self.uncordon)
        handlers.on(DRAIN_NODE, self.drain)
        handlers.on(FORGET_NODE, self.forget)
        handlers.on(MEMBER_FATE, self.fate)
        handlers.on(LIST_KEYS, self.keys)
        handlers.on(ADD_KEY, self.add_key)
        handlers.on(USE_KEY, self.use_key)
        handlers.on(REMOVE_KEY, self.remove_key)

    async def join(self, call: Call[NoParams, NoQuery, JoinRequest]) -> JoinAnswer:
        _only_root(call.grant)
        return self._known().welcome(self._node_info().version)

    async def list(self, call: Call[NoParams, NoQuery, None]) -> FleetNodes:
        """What this node says of itself is what it knows, not what it told."""
        fleet, mine = self._fleet, self._mine()
        if fleet is None:
            return FleetNodes(nodes=(mine,))
        return FleetNodes(nodes=tuple(mine if node.id == mine.id else node for node in await fleet.nodes()))

    async def get(self, call: Call[NodeParams, NoQuery, None]) -> FleetNode:
        """With what the node says itself, if it answers."""
        node_id, fleet = call.params.node_id, self._fleet
        if node_id == self._node.id:
            return msgspec.structs.replace(self._mine(), info=self._node_info())
        if fleet is None:
            raise NotFound(f"there is no node {node_id!r:.40}; this one is alone, and is {self._node.id}")
        node = await fleet.node(node_id)
        try:
            caller = fleet.caller(NodeId(node.id), call.caller)
            return msgspec.structs.replace(node, info=await caller.call(NODE_INFO, timeout_s=_ASK_S))
        except HawkerError:
            return node

    async def cordon(self, call: Call[NodeParams, NoQuery, None]) -> FleetNode:
        other = await self._other(call)
        if other is not None:
            return await other.call(CORDON_NODE, params=call.params)
        return await self._set(cordoned=True)

    async def uncordon(self, call: Call[NodeParams, NoQuery, None]) -> FleetNode:
        other = await self._other(call)
        if other is not None:
            return await other.call(UNCORDON_NODE, params=call.params)
        return await self._set(cordoned=False)

    async def drain(self, call: Call[NodeParams, NoQuery, None]) -> DrainAnswer:
        """Moving them is the client's work: an operator looks on, and may begin again at any time."""
        other = await self._other(call)
        if other is not None:
            return await other.call(DRAIN_NODE, params=call.params)
        node = await self._set(cordoned=True, draining=True)
        there = (record for _, record in self._store.scan(MACHINES))
        return DrainAnswer(node=node, machines=tuple(NodeMachine(id=each.id, app=each.app) for each in there))

    async def forget(self, call: Call[NodeParams, ForgetQuery, None]) -> ForgottenNode:
        return await self._known().forget(call.params.node_id, force=call.query.force)

    async def fate(self, call: Call[NodeParams, NoQuery, None]) -> MemberFate:
        fates = {member.node: str(member.fate) for member in self._known().members}
        return MemberFate(fate=fates.get(NodeId(call.params.node_id), "unknown"))

    async def keys(self, call: Call[NoParams, NoQuery, None]) -> ClusterKeys:
        return self._known().keys()

    async def add_key(self, call: Call[NoParams, NoQuery, AddKeyRequest]) -> ClusterKeys:
        _only_root(call.grant)
        return self._known().add_key(call.body.key)

    async def use_key(self, call: Call[KeyParams, NoQuery, None]) -> ClusterKeys:
        _only_root(call.grant)
        return self._known().use_key(_number(call.params.number))

    async def remove_key(self, call: Call[KeyParams, NoQuery, None]) -> ClusterKeys:
        _only_root(call.grant)
        return self._known().remove_key(_number(call.params.number))

    def _known(self) -> Fleet:
        """Raises `WrongState` on a node that is alone."""
        if self._fleet is None:
            raise WrongState(_ALONE)
        return self._fleet

    async def _other(self, call: Call[NodeParams, NoQuery, None]) -> Caller | None:
        """The way to the node that is meant; None when it is this one. Raises `NotFound`, `Unavailable`."""
        node_id = call.params.node_id
        if node_id == self._node.id:
            return None
        if self._fleet is None:
            raise NotFound(f"there is no node {node_id!r:.40}; this one is alone, and is {self._node.id}")
        node = await self._fleet.node(node_id)
        return self._fleet.caller(NodeId(node.id), call.caller)

    async def _set(self, *, cordoned: bool, draining: bool = False) -> FleetNode:
        """Durable when it returns."""

        def apply(tx: Tx) -> None:
            record = tx.get(NODE, "self") or self._node
            tx.put(NODE, "self", msgspec.structs.replace(record, cordoned=cordoned, draining=draining))

        await self._store.write(apply)
        return self._mine()

    def _mine(self) -> FleetNode:
        record, info = self._store.get(NODE, "self") or self._node, self._node_info()
        return FleetNode(
            id=record.id,
            region=record.region,
            state=str(Fate.ALIVE),
            cordoned=record.cordoned,
            draining=record.draining,
            version=info.version,
            labels=dict(self._labels),
            drivers=(info.driver,),
            since=info.started_at,
            started_at=info.started_at,
            api=self._fleet.api if self._fleet else "",
            machines=sum(info.machines.values()),
            capacity=info.capacity,
            used=info.used,
        )


def _only_root(grant: Grant) -> None:
    """What only the root token may do: who holds the cluster's key is one of the cluster. A token that was made from it
    may bear any name, but is no `Everything`."""
    if not isinstance(grant, Everything):
        raise Forbidden("only the root token may do this")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise NotFound(f"there is no key {text!r:.40}: see `hawker node keys list`")
    return int(text)
