"""Bodies about the cluster: joining it, its nodes, its keys."""

from datetime import datetime
from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.node import Amounts, HostCapacity, NodeInfo
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import (
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
    Unauthorized,
    Unavailable,
    Unprocessable,
    WrongState,
)
from hawker.permission import Action


class JoinRequest(Request, frozen=True, kw_only=True):
    """`node` is set by one that was here before."""

    version: str = ""
    """The version of hawker at the host that joins; empty from a host that does not say it."""
    node: str | None = None


class ClusterPeer(Answer, frozen=True, kw_only=True):
    """`address` is HOST:PORT of its gossip."""

    node: str
    """The id of the node."""
    address: str


class JoinAnswer(Answer, frozen=True, kw_only=True):
    """What a host needs to be one of the cluster. `keys`, by number and in base64, are secret; `keyring` counts their
    changes. `now` is this node's clock."""

    cluster: str
    """The id of the cluster, 16 hexadecimal digits."""
    keys: dict[str, str]
    primary: int
    """The number of the key that what is sent is sealed with."""
    keyring: int
    peers: tuple[ClusterPeer, ...]
    now: datetime
    version: str
    """The version of hawker at the node that answers."""


class AdmitRequest(Request, frozen=True, kw_only=True):
    """A host asks to join and sends nothing secret. `invite` is the id of its invitation, `root` for the root token;
    `key` its X25519 key for this join; `proof` shows that it has the secret; `node` is set by one that was here
    before."""

    invite: Annotated[str, msgspec.Meta(max_length=64)]
    key: Annotated[bytes, msgspec.Meta(max_length=32)]
    proof: Annotated[bytes, msgspec.Meta(max_length=32)]
    node: Annotated[str, msgspec.Meta(max_length=32)] | None = None


class AdmitAnswer(Answer, frozen=True, kw_only=True):
    """`key` is the asked node's for this join; `sealed` is a `Welcome` as JSON, that only the asker can open."""

    key: bytes
    sealed: bytes


class Welcome(JoinAnswer, frozen=True, kw_only=True):
    """The answer to a host that may join, with the root `token` that the nodes of a cluster share."""

    token: str


class InviteRequest(Request, frozen=True, kw_only=True):
    """`uses` hosts may join within `expires_s` seconds; unless told, one within an hour."""

    expires_s: int | None = None
    uses: int | None = None


class Invited(Answer, frozen=True, kw_only=True):
    """A host that joined; `node` is who it was before, empty for a new one."""

    node: str
    source: str
    """The IP address that it joined from."""
    at: datetime


class Invite(Answer, frozen=True, kw_only=True):
    """`state` is open, used, expired or revoked. `token`, which is secret, is shown once: when it is made."""

    id: str
    """The id of the invitation, by which an operator revokes it; it is no secret."""
    node: str
    """The id of the node that made the invitation; only that node takes it."""
    state: str
    created_at: datetime
    expires_at: datetime
    uses: int
    """How many hosts may join by the invitation in all, 1 or more."""
    by: str
    """The name of the token that made it."""
    joined: tuple[Invited, ...] = ()
    token: str | None = None


class InviteList(Answer, frozen=True, kw_only=True):
    invites: tuple[Invite, ...]


class FleetNode(Answer, frozen=True, kw_only=True):
    """One node of the cluster. `state` is alive, suspect, down or left, since `since`; or away: the host is up and only
    the daemon is not. Figures of nodes in other regions are not known here. `rtt_ms` is the way to the node and back in
    milliseconds, `clock_ahead_s` how many seconds its clock is ahead of this node's; both are null for the node that
    answers. `info` is what the node itself says, when it was asked."""

    id: str
    """The id of the node."""
    region: str
    """The code of the node's region."""
    state: str
    cordoned: bool
    """True when the node accepts no new machines."""
    draining: bool
    """True when a client moves the node's machines to other nodes."""
    api: str = ""
    """The URL at which other nodes call the node; empty where it is not known."""
    version: str = ""
    """The version of hawker at the node; empty where it is not known."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """The labels that the node's operator has set, by name."""
    drivers: tuple[str, ...] = ()
    """The names of the drivers that run machines at the node."""
    since: datetime | None = None
    started_at: datetime | None = None
    rtt_ms: float | None = None
    clock_ahead_s: float | None = None
    machines: int | None = None
    """How many machines the node has, 0 or more; null where it is not known."""
    capacity: HostCapacity | None = None
    used: Amounts | None = None
    info: NodeInfo | None = None


class FleetNodes(Answer, frozen=True, kw_only=True):
    nodes: tuple[FleetNode, ...]


class MemberFate(Answer, frozen=True, kw_only=True):
    """What the asked node believes of another: alive, suspect, down or left; away when the host is up and only the
    daemon is not; unknown for a node that it never heard of."""

    fate: str
    """One of the six words above."""


class NodeMachine(Answer, frozen=True, kw_only=True):
    id: str
    """The id of the machine."""
    app: str
    """The name of the machine's app."""


class DrainAnswer(Answer, frozen=True, kw_only=True):
    """The node, which takes no new machines from now on, and those that are still on it."""

    node: FleetNode
    machines: tuple[NodeMachine, ...]


class ForgottenNode(Answer, frozen=True, kw_only=True):
    """A forgotten node, by its id: the cluster ignores all that `node` published up to `epoch`."""

    node: str
    epoch: int


class ClusterKey(Answer, frozen=True, kw_only=True):
    """`name` tells the key from others and says nothing of it. What nodes send is sealed with the `primary`."""

    number: int
    """The number of the key, 0 to 255; of the cluster's keys it has it alone."""
    name: str
    primary: bool


class ClusterKeys(Answer, frozen=True, kw_only=True):
    """`version` counts the changes. `missing_at` are the nodes that are not known to have this version."""

    keys: tuple[ClusterKey, ...]
    version: int
    missing_at: tuple[str, ...] = ()


class AddKeyRequest(Request, frozen=True, kw_only=True):
    """A new key of the cluster: `key` is its 32 bytes as base64; absent: the node makes one."""

    key: str | None = None


# Calls about the cluster: joining it, its nodes, its keys. For operators: not part of the Machines API.


class NodeParams(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    """A node's id, 8 hexadecimal digits."""


class KeyParams(msgspec.Struct, frozen=True, kw_only=True):
    number: str
    """The number of a key of the cluster, in decimal, as the list of keys shows it."""


class InviteParams(msgspec.Struct, frozen=True, kw_only=True):
    invite_id: str
    """The id of an invitation, as the list of invitations shows it; not the invitation itself."""


class ForgetQuery(msgspec.Struct, frozen=True, kw_only=True):
    force: bool = False
    """True also forgets a node that seems to be alive; else the call refuses that."""


JOIN_CLUSTER = Unary(
    name="join_cluster",
    method="POST",
    path="/hawker/v1/cluster/join",
    params=NoParams,
    body=JoinRequest,
    response=JoinAnswer,
    tag=Tag.NODE,
    summary="Show what a host of an older version needs to join the cluster; root token only",
    errors=(Forbidden, WrongState),
    action=Action.ALL,
    body_optional=True,
)

ADMIT_HOST = Unary(
    name="admit_host",
    method="POST",
    path="/hawker/v1/cluster/admit",
    params=NoParams,
    body=AdmitRequest,
    response=AdmitAnswer,
    tag=Tag.NODE,
    summary="Let a host join that has an invitation, and show it what it needs; the body is the proof",
    errors=(Forbidden, Unauthorized, Unavailable, WrongState),
    auth=False,
    strict=True,
)

CREATE_INVITE = Unary(
    name="create_invite",
    method="POST",
    path="/hawker/v1/cluster/invites",
    params=NoParams,
    body=InviteRequest,
    response=Invite,
    tag=Tag.NODE,
    summary="Make an invitation by which a host may join the cluster; root token only",
    errors=(Forbidden, Unprocessable, WrongState),
    action=Action.ALL,
    body_optional=True,
    strict=True,
)

LIST_INVITES = Unary(
    name="list_invites",
    method="GET",
    path="/hawker/v1/cluster/invites",
    params=NoParams,
    response=InviteList,
    tag=Tag.NODE,
    summary="List the invitations that this node made",
    errors=(WrongState,),
    action=Action.ALL,
)

REVOKE_INVITE = Unary(
    name="revoke_invite",
    method="DELETE",
    path="/hawker/v1/cluster/invites/{invite_id}",
    params=InviteParams,
    response=Invite,
    tag=Tag.NODE,
    summary="Revoke an invitation",
    errors=(NotFound, Unavailable, WrongState),
    action=Action.ALL,
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
    ADMIT_HOST,
    CREATE_INVITE,
    LIST_INVITES,
    REVOKE_INVITE,
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
ROOT_CLUSTER_ROUTES = (JOIN_CLUSTER, CREATE_INVITE, ADD_KEY, USE_KEY, REMOVE_KEY)
"""What takes the root token itself: each of them shows or changes who can be one of the cluster."""
CLUSTER_PEER_ROUTES = (MEMBER_FATE,)
