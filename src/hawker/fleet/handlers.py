"""Answers about the cluster: joining it, its nodes, its keys. A node that is alone is the one node there is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.cluster import (
    ADD_KEY,
    ADMIT_HOST,
    CORDON_NODE,
    CREATE_INVITE,
    DRAIN_NODE,
    FORGET_NODE,
    GET_NODE,
    JOIN_CLUSTER,
    LIST_INVITES,
    LIST_KEYS,
    LIST_NODES,
    MEMBER_FATE,
    REMOVE_KEY,
    REVOKE_INVITE,
    UNCORDON_NODE,
    USE_KEY,
    AddKeyRequest,
    AdmitAnswer,
    AdmitRequest,
    ClusterKeys,
    DrainAnswer,
    FleetNode,
    FleetNodes,
    ForgetQuery,
    ForgottenNode,
    Invite,
    Invited,
    InviteList,
    InviteParams,
    InviteRequest,
    JoinAnswer,
    JoinRequest,
    KeyParams,
    MemberFate,
    NodeMachine,
    NodeParams,
    Welcome,
)
from hawker.api.contract.node import NODE_INFO, NodeInfo
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.deferred import deferred
from hawker.errors import Forbidden, HawkerError, NotFound, Unprocessable, WrongState
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.record.machine import MACHINES
from hawker.record.node import NODE, InviteRecord, NodeRecord
from hawker.store.contract import Store, Tx

if TYPE_CHECKING:
    from hawker.auth import invitation
    from hawker.fleet.joining import Invites
    from hawker.fleet.membership import Fleet
else:
    invitation = deferred("hawker.auth.invitation")

_ASK_S = 3.0
_ALONE = "this node is in no cluster: start it with `hawker up --advertise HOST` to begin one"


class WorkerInfo(Protocol):
    """The info of a node as its worker gives it."""

    def __call__(self) -> NodeInfo:
        """Without what was found of the drivers."""

    async def whole(self) -> NodeInfo: ...


class ClusterHandlers:
    """`node_info` is what the node's worker says of it; `fleet` and `invites` are None on a node that is alone."""

    def __init__(
        self,
        node: NodeRecord,
        store: Store,
        labels: Mapping[str, str],
        node_info: WorkerInfo,
        fleet: "Fleet | None",
        invites: "Invites | None" = None,
    ) -> None:
        self._node = node
        self._store = store
        self._labels = labels
        self._node_info = node_info
        self._fleet = fleet
        self._invites = invites

    def bind(self, handlers: Handlers) -> None:
        handlers.on(JOIN_CLUSTER, self.join)
        handlers.on(ADMIT_HOST, self.admit)
        handlers.on(CREATE_INVITE, self.invite)
        handlers.on(LIST_INVITES, self.invites)
        handlers.on(REVOKE_INVITE, self.revoke_invite)
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

    async def admit(self, call: Call[NoParams, NoQuery, AdmitRequest]) -> AdmitAnswer:
        """An invitation is known at the node that made it, which is asked; it seals the answer, so that nobody on the
        way reads it."""
        body = call.body
        maker = NodeId(body.invite[: len(self._node.id)])
        if body.invite != invitation.ROOT_INVITE and maker != self._node.id:
            return await self._at(maker, call.behalf).call(ADMIT_HOST, body=body)
        known, invites = self._known(), self._own_invites()
        secret = await invites.admit(body, call.source)
        welcome = known.welcome(self._node_info().version)
        whole = Welcome(token=invites.root.reveal(), **msgspec.structs.asdict(welcome))
        try:
            key, sealed = invitation.sealed_for(body.key, secret, body.invite, msgspec.json.encode(whole))
        except ValueError as error:
            raise Unprocessable("key: not an X25519 key") from error
        return AdmitAnswer(key=key, sealed=sealed)

    async def invite(self, call: Call[NoParams, NoQuery, InviteRequest]) -> Invite:
        _only_root(call.grant)
        invites, cluster = self._own_invites(), self._known().cluster
        made, token = await invites.make(cluster, expires_s=call.body.expires_s, uses=call.body.uses, by=call.caller)
        return self._shown(made, token)

    async def invites(self, call: Call[NoParams, NoQuery, None]) -> InviteList:
        return InviteList(invites=tuple(map(self._shown, self._own_invites().list())))

    async def revoke_invite(self, call: Call[InviteParams, NoQuery, None]) -> Invite:
        maker = NodeId(call.params.invite_id[: len(self._node.id)])
        invites = self._own_invites()
        if maker != self._node.id:
            return await self._at(maker, call.behalf).call(REVOKE_INVITE, params=call.params)
        return self._shown(await invites.revoke(call.params.invite_id))

    async def list(self, call: Call[NoParams, NoQuery, None]) -> FleetNodes:
        """All nodes of the fleet. This node's own entry is what it knows, not what it told."""
        fleet, mine = self._fleet, self._mine()
        if fleet is None:
            return FleetNodes(nodes=(mine,))
        return FleetNodes(nodes=tuple(mine if node.id == mine.id else node for node in await fleet.nodes()))

    async def get(self, call: Call[NodeParams, NoQuery, None]) -> FleetNode:
        """One node, with what the node says itself, if it answers."""
        node_id, fleet = call.params.node_id, self._fleet
        if node_id == self._node.id:
            return msgspec.structs.replace(self._mine(), info=await self._node_info.whole())
        if fleet is None:
            raise NotFound(f"there is no node {node_id!r:.40}; this one is alone, and is {self._node.id}")
        node = await fleet.node(node_id)
        try:
            caller = fleet.caller(NodeId(node.id), call.behalf)
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
        return MemberFate(fate=await self._known().fate(NodeId(call.params.node_id)))

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

    def _own_invites(self) -> "Invites":
        """Raises `WrongState` on a node that is alone."""
        if self._invites is None:
            raise WrongState(_ALONE)
        return self._invites

    def _at(self, node: NodeId, caller: str) -> Caller:
        """The way to the node that made an invitation. Raises `NotFound`, `Unavailable`, `WrongState`."""
        fleet = self._known()
        if node not in {member.node for member in fleet.members}:
            raise NotFound("no node of this cluster made that invitation")
        return fleet.caller(node, caller)

    def _shown(self, record: InviteRecord, token: str | None = None) -> Invite:
        joined = (Invited(node=each.node, source=each.source, at=instant(each.at)) for each in record.joined)
        return Invite(
            id=record.id,
            node=self._node.id,
            state=self._own_invites().state_of(record),
            created_at=instant(record.created_at),
            expires_at=instant(record.expires_at),
            uses=record.uses,
            by=record.by,
            joined=tuple(joined),
            token=token,
        )

    def _known(self) -> "Fleet":
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
        return self._fleet.caller(NodeId(node.id), call.behalf)

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
    may bear any name, but is not it; nor is the one that nodes show each other."""
    if not grant.root:
        raise Forbidden("only the root token may do this")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise NotFound(f"there is no key {text!r:.40}: see `hawker node keys list`")
    return int(text)
