"""A node's part in its cluster, as its handlers use it: who is there, how they are reached, joining, forgetting, keys.

Nothing here is needed to run this node's own machines: all of it may be away.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.body import instant
from hawker.api.contract.cluster import ClusterKey, ClusterKeys, ClusterPeer, FleetNode, ForgottenNode, JoinAnswer
from hawker.catalog.contract import Catalog, ResultTable
from hawker.catalog.http.service import Vitals
from hawker.clock import Clock
from hawker.cluster import KEY_BYTES, MAX_FORGOTTEN, MAX_PEERS, Cluster, Keyring, Peer, name_of_key
from hawker.errors import BadRequest, Conflict, HawkerError, NotFound, WrongState
from hawker.fleet.host_watch import AWAY, AskHost, HostWatch, nobody
from hawker.fleet.view import NODES, fleet_nodes, one_of
from hawker.gossip.contract import Fate, Member, Mesh
from hawker.gossip.keyring import GossipKeyring as Ring
from hawker.ids import NodeId
from hawker.log import bind

QUERY_S = 5.0

_log = bind("hawker.fleet")

CallerOf: TypeAlias = Callable[[NodeId, str], Caller]
"""The way to a node's peer API, in the name of somebody. Raises `Unavailable` when it is not known where that is."""


class Gossip(Mesh, Protocol):
    """What the fleet asks of gossip beside messages."""

    @property
    def keyring(self) -> Ring: ...

    def rekey(self, keyring: Ring) -> None:
        """Use this one from now on, and tell everybody."""

    def behind(self) -> Sequence[NodeId]:
        """The living who are not known to have this keyring."""

    def forget(self, node: NodeId, fence: int) -> None:
        """What this node says in epochs up to `fence` counts no more, at all nodes."""


class Forgets(Protocol):
    """The catalog's part of forgetting."""

    async def forget(self, origin: NodeId) -> int:
        """Its rows go here and everywhere. The epoch up to which it is ignored."""


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
        """Its id."""
        return self._cluster.id

    @property
    def api(self) -> str:
        """Of this node, for others."""
        meta = self._gossip.me.meta
        return meta.api if meta else ""

    @property
    def members(self) -> Sequence[Member]:
        return self._gossip.members()

    @property
    def peers(self) -> Sequence[Peer]:
        """Those who were known last, as they are written down."""
        return self._cluster.peers

    async def nodes(self) -> tuple[FleetNode, ...]:
        """What gossip knows of them, should the catalog be an agent's that is away, slow or wrong."""
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
        """As gossip has it; away where only the daemon is, and unknown where nobody has heard of it."""
        fate = next((str(member.fate) for member in self.members if member.node == node), "unknown")
        return AWAY if fate == Fate.DOWN and await self.hosts.look(node) else fate

    async def node(self, node_id: str) -> FleetNode:
        """Raises `NotFound`."""
        found = one_of(await self.nodes(), node_id)
        if found is None:
            raise NotFound(f"there is no node {node_id!r:.40}: see `hawker node list`")
        return found

    def welcome(self, version: str) -> JoinAnswer:
        """All that a host needs to be one of the cluster."""
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
        """Raises `NotFound`, and `WrongState` for a node that lives, unless `force`."""
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
        """Raises `BadRequest`, `Conflict`."""
        return self._rotate(self._gossip.keyring.added(self._bytes_of(key)))

    def use_key(self, number: int) -> ClusterKeys:
        """Raises `BadRequest`, and `Conflict` while somebody would not understand it."""
        self._all_have_it()
        return self._rotate(self._gossip.keyring.using(number))

    def remove_key(self, number: int) -> ClusterKeys:
        """Raises `BadRequest`, and `Conflict` while somebody may still use it."""
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
