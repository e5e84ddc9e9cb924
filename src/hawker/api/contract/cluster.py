"""Bodies about the cluster: joining it, its nodes, its keys."""

from datetime import datetime

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.node import Amounts, HostCapacity, NodeInfo
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import Conflict, Forbidden, NotFound, NotServed, Unavailable, Unprocessable, WrongState
from hawker.permission import Action


class JoinRequest(Request, frozen=True, kw_only=True):
    """`node` is set by one that was here before."""

    version: str = ""
    node: str | None = None


class ClusterPeer(Answer, frozen=True, kw_only=True):
    """`address` is HOST:PORT of its gossip."""

    node: str
    address: str


class JoinAnswer(Answer, frozen=True, kw_only=True):
    """What a host needs to be one of the cluster. `keys`, by number and in base64, are secret; `keyring` counts their
    changes. `now` is this node's clock."""

    cluster: str
    keys: dict[str, str]
    primary: int
    keyring: int
    peers: tuple[ClusterPeer, ...]
    now: datetime
    version: str


class FleetNode(Answer, frozen=True, kw_only=True):
    """`state` is alive, suspect, down or left, since `since`. Figures of nodes in other regions are not known here;
    `rtt_ms` and `clock_ahead_s` (of this node's clock) are missing for the node that answers. `info` is what the node
    itself says, when it was asked."""

    id: str
    region: str
    state: str
    cordoned: bool
    draining: bool
    api: str = ""
    version: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    drivers: tuple[str, ...] = ()
    since: datetime | None = None
    started_at: datetime | None = None
    rtt_ms: float | None = None
    clock_ahead_s: float | None = None
    machines: int | None = None
    capacity: HostCapacity | None = None
    used: Amounts | None = None
    info: NodeInfo | None = None


class FleetNodes(Answer, frozen=True, kw_only=True):
    nodes: tuple[FleetNode, ...]


class MemberFate(Answer, frozen=True, kw_only=True):
    """What the node that is asked believes of another: alive, suspect, down, left; unknown of one that it never
    heard of."""

    fate: str


class NodeMachine(Answer, frozen=True, kw_only=True):
    id: str
    app: str


class DrainAnswer(Answer, frozen=True, kw_only=True):
    """The node, which takes no new machines from now on, and those that are still on it."""

    node: FleetNode
    machines: tuple[NodeMachine, ...]


class ForgottenNode(Answer, frozen=True, kw_only=True):
    """What of `node` is ignored from now on: all that it said up to `epoch`."""

    node: str
    epoch: int


class ClusterKey(Answer, frozen=True, kw_only=True):
    """`name` tells the key from others and says nothing of it. What nodes send is sealed with the `primary`."""

    number: int
    name: str
    primary: bool


class ClusterKeys(Answer, frozen=True, kw_only=True):
    """`version` counts the changes. `missing_at` are the nodes that are not known to have this version."""

    keys: tuple[ClusterKey, ...]
    version: int
    missing_at: tuple[str, ...] = ()


class AddKeyRequest(Request, frozen=True, kw_only=True):
    """Without a `key`, 32 bytes as base64, a new one is made."""

    key: str | None = None


# Calls about the cluster: joining it, its nodes, its keys. For operators: not part of the Machines API.


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
