"""Calls about the cluster: joining it, its nodes, its keys. For operators: not part of the Machines API."""

from types import NoneType

import msgspec

from hawker.api.bodies import (
    AddKeyRequest,
    ClusterKeys,
    DrainAnswer,
    FleetNode,
    FleetNodes,
    ForgottenNode,
    JoinAnswer,
    JoinRequest,
    MemberFate,
)
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.errors import Conflict, Forbidden, NotFound, NotServed, Unavailable, Unprocessable, WrongState
from hawker.permission import Action


class NodeParams(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str


class KeyParams(msgspec.Struct, frozen=True, kw_only=True):
    number: str


class ForgetQuery(msgspec.Struct, frozen=True, kw_only=True):
    force: bool = False


JOIN_CLUSTER = Unary(
    name="join_cluster",
    method="POST",
    path="/hawker/v1/cluster/join",
    params=NoParams,
    query=NoQuery,
    body=JoinRequest,
    response=JoinAnswer,
    tag=Tag.NODE,
    summary="Show what a host needs to join the cluster; root token only",
    errors=(Forbidden, WrongState),
    action=Action.ALL,
    body_optional=True,
)

LIST_NODES = Unary(
    name="list_nodes",
    method="GET",
    path="/hawker/v1/nodes",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=FleetNodes,
    tag=Tag.NODE,
    summary="List the nodes of the cluster",
    errors=(Unavailable,),
)

GET_NODE = Unary(
    name="get_node",
    method="GET",
    path="/hawker/v1/nodes/{node_id}",
    params=NodeParams,
    query=NoQuery,
    body=NoneType,
    response=FleetNode,
    tag=Tag.NODE,
    summary="Show one node of the cluster",
    errors=(NotFound, Unavailable),
)

CORDON_NODE = Unary(
    name="cordon_node",
    method="POST",
    path="/hawker/v1/nodes/{node_id}/cordon",
    params=NodeParams,
    query=NoQuery,
    body=NoneType,
    response=FleetNode,
    tag=Tag.NODE,
    summary="Disable scheduling on a node",
    errors=(NotFound, Unavailable),
    action=Action.ALL,
)

UNCORDON_NODE = Unary(
    name="uncordon_node",
    method="POST",
    path="/hawker/v1/nodes/{node_id}/uncordon",
    params=NodeParams,
    query=NoQuery,
    body=NoneType,
    response=FleetNode,
    tag=Tag.NODE,
    summary="Enable scheduling on a node",
    errors=(NotFound, Unavailable),
    action=Action.ALL,
)

DRAIN_NODE = Unary(
    name="drain_node",
    method="POST",
    path="/hawker/v1/nodes/{node_id}/drain",
    params=NodeParams,
    query=NoQuery,
    body=NoneType,
    response=DrainAnswer,
    tag=Tag.NODE,
    summary="Disable scheduling on a node, and list the machines to move away",
    errors=(NotFound, Unavailable),
    action=Action.ALL,
)

FORGET_NODE = Unary(
    name="forget_node",
    method="DELETE",
    path="/hawker/v1/nodes/{node_id}",
    params=NodeParams,
    query=ForgetQuery,
    body=NoneType,
    response=ForgottenNode,
    tag=Tag.NODE,
    summary="Remove a node that will not come back, with its catalog rows",
    errors=(NotFound, NotServed, WrongState),
    action=Action.ALL,
)

LIST_KEYS = Unary(
    name="list_cluster_keys",
    method="GET",
    path="/hawker/v1/cluster/keys",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=ClusterKeys,
    tag=Tag.NODE,
    summary="List the names of the cluster's keys",
    errors=(WrongState,),
    action=Action.ALL,
)

ADD_KEY = Unary(
    name="add_cluster_key",
    method="POST",
    path="/hawker/v1/cluster/keys",
    params=NoParams,
    query=NoQuery,
    body=AddKeyRequest,
    response=ClusterKeys,
    tag=Tag.NODE,
    summary="Add a key that all nodes accept",
    errors=(Conflict, Forbidden, Unprocessable, WrongState),
    action=Action.ALL,
    body_optional=True,
    strict=True,
)

USE_KEY = Unary(
    name="use_cluster_key",
    method="POST",
    path="/hawker/v1/cluster/keys/{number}/use",
    params=KeyParams,
    query=NoQuery,
    body=NoneType,
    response=ClusterKeys,
    tag=Tag.NODE,
    summary="Encrypt messages between nodes with this key",
    errors=(Conflict, Forbidden, Unprocessable, WrongState),
    action=Action.ALL,
)

REMOVE_KEY = Unary(
    name="remove_cluster_key",
    method="DELETE",
    path="/hawker/v1/cluster/keys/{number}",
    params=KeyParams,
    query=NoQuery,
    body=NoneType,
    response=ClusterKeys,
    tag=Tag.NODE,
    summary="Remove a key from all nodes",
    errors=(Conflict, Forbidden, Unprocessable, WrongState),
    action=Action.ALL,
)

MEMBER_FATE = Unary(
    name="member_fate",
    method="GET",
    path="/internal/v1/members/{node_id}",
    params=NodeParams,
    query=NoQuery,
    body=NoneType,
    response=MemberFate,
    tag=Tag.NODE,
    summary="Show what this node believes of another",
    timeout_s=3.0,
)

CLUSTER_ROUTES = (
    JOIN_CLUSTER,
    LIST_NODES,
    GET_NODE,
    CORDON_NODE,
    UNCORDON_NODE,
    DRAIN_NODE,
    FORGET_NODE,
    LIST_KEYS,
    ADD_KEY,
    USE_KEY,
    REMOVE_KEY,
)
CLUSTER_PEER_ROUTES = (MEMBER_FATE,)
