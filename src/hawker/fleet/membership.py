"""A node's part in its cluster, as its handlers use it: who is there, by the catalog and by gossip, how they are
reached, joining, forgetting, keys.

Nothing here is needed to run this node's own machines: all of it may be away.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.cluster import ClusterKey, ClusterKeys, ClusterPeer, FleetNode, ForgottenNode, JoinAnswer
from hawker.api.contract.node import Amounts, HostCapacity
from hawker.catalog.change import Value
from hawker.catalog.contract import Catalog, ResultTable, Statement
from hawker.catalog.http.service import Vitals
from hawker.clock import Clock
from hawker.cluster import KEY_BYTES, MAX_FORGOTTEN, MAX_PEERS, Cluster, Keyring, Peer, name_of_key
from hawker.errors import BadRequest, Conflict, HawkerError, NotFound, WrongState
from hawker.fleet.presence import AWAY, AskHost, HostWatch, nobody
from hawker.gossip.contract import Fate, Member, Mesh
from hawker.gossip.keyring import GossipKeyring as Ring
from hawker.ids import NodeId
from hawker.log import bind

T = TypeVar("T")

NODES = Statement(
    query="SELECT n.node, n.region, n.api, n.version, n.drivers, n.labels, n.cordoned, n.draining, n.started_at,"
    " c.cpus, c.memory_mib, c.disk_mib, c.shared_ratio, c.used_shared_cpus, c.used_performance_cpus,"
    " c.used_memory_mib, c.used_disk_mib, c.gpus,"
    " (SELECT count(*) FROM machines m WHERE m.node = n.node) AS machines"
    " FROM nodes n LEFT JOIN capacity c ON c.node = n.node"
)


def fleet_nodes(table: ResultTable, members: Sequence[Member], me: NodeId) -> tuple[FleetNode, ...]:
    """All nodes of the fleet, by region and id. A node that gossips and was not heard of by the catalog yet is there,
    too."""
    rows = {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    known = {member.node: member for member in members}
    found = (_node(node, rows.get(node), known.get(NodeId(node)), me) for node in {*rows, *known})
    return tuple(sorted(found, key=lambda each: (each.region, each.id)))


def _node(node: str, row: Mapping[str, Value] | None, member: Member | None, me: NodeId) -> FleetNode:
    meta = member.meta if member else None
    row = row or {}
    return FleetNode(
        id=node,
        region=str(row.get("region") or (meta.region if meta else "")),
        state=str(member.fate if member else Fate.DOWN),
        cordoned=bool(row.get("cordoned")),
        draining=bool(row.get("draining")),
        api=str(row.get("api") or (meta.api if meta else "")),
        version=str(row.get("version") or (meta.version if meta else "")),
        labels=_read(row.get("labels"), dict[str, str], {}),
        drivers=_read(row.get("drivers"), tuple[str, ...], ()),
        since=instant(member.since) if member and member.since else None,
        started_at=instant(_number(row.get("started_at"))) if row.get("started_at") else None,
        rtt_ms=round(member.rtt_s * 1000, 3) if member and member.rtt_s and node != me else None,
        clock_ahead_s=round(member.skew_s, 3) if member and member.rtt_s and node != me else None,
        machines=None if row.get("cpus") is None else int(_number(row.get("machines"))),
        capacity=_capacity(row),
        used=_used(row),
    )


def _capacity(row: Mapping[str, Value]) -> HostCapacity | None:
    if row.get("cpus") is None:
        return None
    return HostCapacity(
        cpus=_whole(row, "cpus"),
        memory_mb=_whole(row, "memory_mib"),
        disk_mb=_whole(row, "disk_mib"),
        shared_cpu_ratio=_number(row.get("shared_ratio")),
        gpus=_read(row.get("gpus"), dict[str, int], {}),
    )


def _used(row: Mapping[str, Value]) -> Amounts | None:
    if row.get("cpus") is None:
        return None
    return Amounts(
        shared_cpus=_whole(row, "used_shared_cpus"),
        performance_cpus=_whole(row, "used_performance_cpus"),
        memory_mb=_whole(row, "used_memory_mib"),
        disk_mb=_whole(row, "used_disk_mib"),
    )


def one_of(nodes: Iterable[FleetNode], node_id: str) -> FleetNode | None:
    return next((node for node in nodes if node.id == node_id), None)


def _whole(row: Mapping[str, Value], name: str) -> int:
    return int(_number(row.get(name)))


def _number(value: Value) -> float:
    """Whatever another node wrote there."""
    return float(value) if isinstance(value, int | float) else 0.0


def _read(value: Value, kind: type[T], otherwise: T) -> T:
    try:
        return msgspec.json.decode(value, type=kind) if isinstance(value, str | bytes) else otherwise
    except msgspec.DecodeError:
        return otherwise


QUERY_S = 5.0

_log = bind("hawker.fleet")

CallerOf: TypeAlias = Callable[[NodeId, str], Caller]
"""The way to a node's peer API, in the name of somebody. Raises `Unavailable` when it is not known where that is."""


class Gossip(Mesh, Protocol):
    """The part of gossip, beside messages, that the fleet asks of it."""

    @property
    def keyring(self) -> Ring: ...

    def rekey(self, keyring: Ring) -> None:
        """Uses this keyring from now on, and tells everybody."""

    def behind(self) -> Sequence[NodeId]:
        """The living members that are not known to have this keyring."""

    def forget(self, node: NodeId, fence: int) -> None:
        """Forgets `node`: what it says in epochs up to `fence` is ignored, at all nodes."""


class Forgets(Protocol):
    """The catalog's part of forgetting."""

    async def forget(self, origin: NodeId) -> int:
        """Forgets a node: its rows go here and everywhere. Returns the epoch up to which it is ignored."""


class Fleet:
    def __init__(
        self,
        *,
        cluster: Cluster,
        gossip: Gossip,
        catalog: Catalog,
        forgets: Forgets,
        caller: CallerOf,
        clock: Clock,
        save: Callable[[Cluster], None],
        vitals: Callable[[], Vitals | None] = lambda: None,
        ask_host: AskHost = nobody,
        lost_after_s: float | None = None,
    ) -> None:
        """`save` writes cluster.json; it blocks for a sync. `vitals` says how replication does, None where an agent
        keeps the catalog. `ask_host` and `lost_after_s` are a `HostWatch`'s."""
        self._cluster = cluster
        self._gossip = gossip
        self._catalog = catalog
        self._forgets = forgets
        self._clock = clock
        self._save = save
        self.caller = caller
        self.vitals = vitals
        self.hosts = HostWatch(gossip.members, ask_host, clock, lost_after_s)

    @property
    def me(self) -> NodeId:
        return self._gossip.me.node

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._cluster.id

    @property
    def api(self) -> str:
        """The address of this node's API, for others; empty while it is not known."""
        meta = self._gossip.me.meta
        return meta.api if meta else ""

    @property
    def members(self) -> Sequence[Member]:
        return self._gossip.members()

    @property
    def peers(self) -> Sequence[Peer]:
        """The nodes that were known last, as they are written down."""
        return self._cluster.peers

    async def nodes(self) -> tuple[FleetNode, ...]:
        """All nodes of the fleet; what gossip knows of them, should the catalog be an agent's that is away, slow or
        wrong."""
        try:
            told = await self._catalog.query(NODES, timeout_s=QUERY_S)
        except HawkerError:
            told = ResultTable(columns=(), rows=())
        return tuple(map(self._shown, fleet_nodes(told, self.members, self.me)))

    def _shown(self, node: FleetNode) -> FleetNode:
        """A node that gossip calls down is only away where its host answers."""
        if node.state != Fate.DOWN or not self.hosts.is_away(NodeId(node.id)):
            return node
        return msgspec.structs.replace(node, state=AWAY)

    async def fate(self, node: NodeId) -> str:
        """The fate of `node` as gossip has it; away where only the daemon is, and unknown where nobody has heard of
        it."""
        fate = next((str(member.fate) for member in self.members if member.node == node), "unknown")
        return AWAY if fate == Fate.DOWN and await self.hosts.look(node) else fate

    async def lost_since(self, node: NodeId) -> float | None:
        """The moment since which the node is down and its host silent: Unix seconds, 0 for a node that nobody knows;
        None while either lives, or the node only left: its host may be up."""
        member = next((each for each in self.members if each.node == node), None)
        if member is None:
            return 0.0
        if member.fate is not Fate.DOWN or await self.hosts.look(node):
            return None
        return member.since

    async def node(self, node_id: str) -> FleetNode:
        """The one node that `node_id` names. Raises `NotFound`."""
        found = one_of(await self.nodes(), node_id)
        if found is None:
            raise NotFound(f"there is no node {node_id!r:.40}: see `hawker node list`")
        return found

    def welcome(self, version: str) -> JoinAnswer:
        """The answer that has all that a host needs to be one of the cluster."""
        keyring = keyring_of(self._gossip.keyring)
        living = (each for each in self.members if each.fate in (Fate.ALIVE, Fate.SUSPECT))
        return JoinAnswer(
            cluster=self._cluster.id,
            keys=keyring.keys,
            primary=keyring.primary,
            keyring=keyring.version,
            peers=tuple(ClusterPeer(node=each.node, address=each.address) for each in living),
            now=instant(self._clock.now()),
            version=version,
        )

    async def forget(self, node_id: str, *, force: bool) -> ForgottenNode:
        """Forgets a node. Raises `NotFound`, and `WrongState` for a node that lives, unless `force`."""
        node = await self.node(node_id)
        if node.id == self.me:
            raise WrongState("this is the node itself: ask another one to forget it")
        if node.state in (Fate.ALIVE, Fate.SUSPECT, AWAY) and not force:
            raise WrongState(f"node {node.id} is {node.state}: stop it first, or forget it with --force")
        epoch = await self._forgets.forget(NodeId(node.id))
        self._gossip.forget(NodeId(node.id), epoch)
        self._drop(NodeId(node.id))
        _log.warning("node forgotten", extra={"forgotten": node.id, "epoch": epoch})
        return ForgottenNode(node=node.id, epoch=epoch)

    # Keys.

    def keys(self) -> ClusterKeys:
        ring = self._gossip.keyring
        keys = tuple(
            ClusterKey(number=number, name=name_of_key(key), primary=number == ring.primary)
            for number, key in sorted(ring.keys.items())
        )
        return ClusterKeys(keys=keys, version=ring.version, missing_at=tuple(self._gossip.behind()))

    def add_key(self, key: str | None) -> ClusterKeys:
        """Adds `key` to the keyring. Raises `BadRequest`, `Conflict`."""
        return self._rotate(self._gossip.keyring.added(self._bytes_of(key)))

    def use_key(self, number: int) -> ClusterKeys:
        """Makes the key of this number the one that seals. Raises `BadRequest`, and `Conflict` while somebody would not
        understand it."""
        self._all_have_it()
        return self._rotate(self._gossip.keyring.using(number))

    def remove_key(self, number: int) -> ClusterKeys:
        """Removes the key of this number. Raises `BadRequest`, and `Conflict` while somebody may still use it."""
        self._all_have_it()
        return self._rotate(self._gossip.keyring.removed(number))

    def remember(
        self,
        keyring: Ring | None = None,
        members: Sequence[Member] = (),
        forgotten: Mapping[NodeId, int] | None = None,
    ) -> None:
        """Write down what is needed to find the others again, and who was forgotten last."""
        cluster = self._cluster
        if forgotten is not None:
            last = sorted(forgotten.items(), key=lambda each: each[1])[-MAX_FORGOTTEN:]
            cluster = msgspec.structs.replace(cluster, forgotten=dict(last))
        if keyring is not None:
            cluster = msgspec.structs.replace(cluster, keyring=keyring_of(keyring))
        if members:
            found = {peer.node: peer for peer in self._cluster.peers}
            found |= {each.node: Peer(node=each.node, address=each.address) for each in members}
            found.pop(self.me, None)
            peers = tuple(peer for _, peer in sorted(found.items()))[:MAX_PEERS]
            cluster = msgspec.structs.replace(cluster, peers=peers)
        self._write(cluster)

    def _drop(self, node: NodeId) -> None:
        peers = tuple(peer for peer in self._cluster.peers if peer.node != node)
        self._write(msgspec.structs.replace(self._cluster, peers=peers))

    def _write(self, cluster: Cluster) -> None:
        if cluster != self._cluster:
            self._save(cluster)
            self._cluster = cluster

    def _rotate(self, ring: Ring) -> ClusterKeys:
        """On this node's disk before anybody hears of it."""
        self.remember(ring)
        self._gossip.rekey(ring)
        return self.keys()

    def _all_have_it(self) -> None:
        behind = self._gossip.behind()
        if behind:
            raise Conflict(f"nodes that do not have the keyring's last change yet: {', '.join(behind)}; try again")

    def _bytes_of(self, key: str | None) -> bytes:
        if key is None:
            return self._clock.token_bytes(KEY_BYTES)
        try:
            return base64.b64decode(key, validate=True)
        except ValueError as error:
            raise BadRequest(f"key: {KEY_BYTES} bytes in base64 are wanted") from error


def keyring_of(ring: Ring) -> Keyring:
    keys = {str(number): base64.b64encode(key).decode() for number, key in sorted(ring.keys.items())}
    return Keyring(keys=keys, primary=ring.primary, version=ring.version)


def ring_of(keyring: Keyring) -> Ring:
    keys: Mapping[int, bytes] = keyring.secrets
    return Ring(keys=keys, primary=keyring.primary, version=keyring.version)
