"""Bodies about the cluster: joining it, its nodes, its keys."""

from datetime import datetime

import msgspec

from hawker.api.bodies.body import Answer, Request
from hawker.api.bodies.node import Amounts, HostCapacity, NodeInfo


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
