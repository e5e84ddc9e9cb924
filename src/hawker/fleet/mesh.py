"""The tunnels to other hosts, as the catalog has it: to each host that has a machine of a network that is here, with
the addresses of those machines. What is decided is pure (`plan_mesh`); what is told is the difference to what the
device has, when that changes, and once a minute.

Nothing is made before an address leads elsewhere: a node alone, and one whose networks are all its own, has no device
and no process for this.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Network, ip_address
from typing import Protocol

import anyio
import msgspec
from msgspec.structs import replace

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.errors import Fault, HawkerError
from hawker.fair.threads import Pool, in_thread
from hawker.fleet.failover import CatalogQueries
from hawker.fleet.publish import Source
from hawker.fleet.rows import Row, mesh_row
from hawker.host.address import machine_prefix, peer_prefix
from hawker.host.mesh.device import TunnelDevice
from hawker.host.mesh.wireguard import MeshKey, MeshPeer, MeshState, PeerTraffic, difference, is_key
from hawker.ids import MachineId, NodeId
from hawker.log import bind
from hawker.value_object import ValueObject

MESH_HOSTS, OWN = "mesh_hosts", "self"
"""The source of what the fleet is told of this node's end, and its only key."""
MAX_ADDRESSES = 100_000
"""The most addresses of other hosts' machines that a host knows the way to."""
KEEPALIVE_S = 25
"""The seconds after which a packet goes through each tunnel, also where no machine sends any: so its ends shake hands
every two minutes, and a firewall between them keeps the way open."""
SILENT_S = 200.0
"""The seconds without a handshake after which a tunnel is broken: WireGuard gives a session up after 180 s."""
_EVERY_S, _COMPARE_EVERY_S, _QUERY_S, _WAIT_S = 1.0, 60.0, 5.0, 2.0
_HOSTS = "SELECT node, public_key, endpoint FROM mesh_hosts ORDER BY node"
_ADDRESSES = (
    "SELECT node, machine, network FROM addresses WHERE network IN (SELECT value FROM json_each(?)) "
    "ORDER BY machine, generation DESC, node LIMIT ?"
)
_PEERS = (
    "SELECT node, id, network FROM peers WHERE network IN (SELECT value FROM json_each(?)) ORDER BY id, node LIMIT ?"
)
_HEX_DIGITS = frozenset("0123456789abcdef")
_log = bind("hawker.mesh")


class MeshHost(ValueObject, frozen=True, kw_only=True):
    """A node's end: its public key, and ADDRESS:PORT where it hears."""

    node: NodeId
    key: str
    """The public key of WireGuard at this host, in base64."""
    endpoint: str
    """An IP address and a UDP port, 1 to 65535."""

    @property
    def address(self) -> str:
        return self.endpoint.rpartition(":")[0].strip("[]")


class MachineAddress(ValueObject, frozen=True):
    """A machine of a private network, and the node that it is on; or a computer that is in it by way of that node."""

    node: NodeId
    machine: MachineId
    network_id: int
    """The number of the private network, 0 to 4294967295; with the machine's id it gives the address."""
    is_peer: bool = False
    """The address is that of somebody's computer; it begins with another prefix than those of machines."""

    @property
    def prefix(self) -> IPv6Network:
        of = peer_prefix if self.is_peer else machine_prefix
        return of(self.network_id, self.machine)


def plan_mesh(me: MeshHost, hosts: Iterable[MeshHost], addresses: Iterable[MachineAddress]) -> Mapping[str, MeshPeer]:
    """The tunnels of the host `me`, with the addresses behind each. Of several addresses of one machine the first
    counts: the way to it is one. There is no tunnel to a node of the same host, nor to two nodes with one key."""
    ways: dict[NodeId, MeshHost] = {}
    keys = {me.key}
    for host in hosts:
        if host.node != me.node and host.address != me.address and host.key not in keys:
            ways[host.node] = host
            keys.add(host.key)
    allowed: dict[NodeId, set[str]] = {}
    seen: set[IPv6Network] = set()
    for each in addresses:
        if each.prefix not in seen:
            seen.add(each.prefix)
            if each.node in ways:
                allowed.setdefault(each.node, set()).add(str(each.prefix))
    return {
        ways[node].key: MeshPeer(ways[node].endpoint, frozenset(found), KEEPALIVE_S) for node, found in allowed.items()
    }


class SilentTunnel(ValueObject, frozen=True, kw_only=True):
    """The tunnel to a host that carries nothing for `seconds` now. `heard`: packets of that host come all the same, as
    of the last look, so it is the other direction that is broken."""

    endpoint: str
    """ADDRESS:PORT of the other host."""
    seconds: float
    heard: bool


def said(tunnel: SilentTunnel) -> str:
    """The state of a silent tunnel in words, for the operator of this host."""
    way = "hears nothing of this host" if tunnel.heard else "is not heard by this host"
    return f"its host, at {tunnel.endpoint}, {way} by WireGuard for {tunnel.seconds:.0f} s, and is alive"


class _Seen(ValueObject, frozen=True):
    """`since` are the seconds, by a monotonic clock, at which these figures were new."""

    handshake_at: float
    shaken_since: float
    received_bytes: int
    received_since: float


class TunnelWatch:
    """The judge of which tunnels carry nothing, by what the device says of its peers each time that it is looked at.
    Pure. A handshake needs both directions, so it is the judge; that of the last minutes is enough, whatever else is
    sent. Figures are compared with themselves, so a clock that jumps changes nothing."""

    def __init__(self) -> None:
        self._of: dict[str, _Seen] = {}
        self.silent: Mapping[str, SilentTunnel] = {}

    def look(self, peers: Mapping[str, MeshPeer], traffic: Mapping[str, PeerTraffic], now: float) -> None:
        """`peers` are those that are to be there; what is new among them has its time. `silent` is by public key."""
        self._of = {key: self._after(self._of.get(key), traffic.get(key, PeerTraffic()), now) for key in peers}
        self.silent = {
            key: SilentTunnel(
                endpoint=peers[key].endpoint,
                seconds=now - seen.shaken_since,
                heard=seen.received_since == now,
            )
            for key, seen in self._of.items()
            if now - seen.shaken_since >= SILENT_S
        }

    def _after(self, before: _Seen | None, now_is: PeerTraffic, now: float) -> _Seen:
        if before is None:
            return _Seen(now_is.handshake_at, now, now_is.received_bytes, now)
        shaken = now if now_is.handshake_at != before.handshake_at else before.shaken_since
        received = now if now_is.received_bytes != before.received_bytes else before.received_since
        return _Seen(now_is.handshake_at, shaken, now_is.received_bytes, received)


class MeshDevice(Protocol):
    async def there(self) -> TunnelDevice:
        """The device that is there. Raises `Fault` where there is none."""

    @property
    def is_there(self) -> bool:
        """Whether there was a device a moment ago; nothing is asked of it."""

    def take(self, key: MeshKey) -> None:
        """Gives the device this key, from the next `there` on."""


class OwnKey(Protocol):
    """The key of this node's end."""

    @property
    def key(self) -> MeshKey: ...

    def renewed(self) -> bool:
        """Whether the key is another one than before. May block."""


class FleetMesh:
    """`networks` are those with machines here. `changed` is called when the fleet is to be told another key."""

    def __init__(
        self,
        me: MeshHost,
        own: OwnKey,
        catalog: CatalogQueries,
        networks: Callable[[], Collection[int]],
        device: MeshDevice,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._me = me
        self._own = own
        self._changed = changed
        self._catalog = catalog
        self._networks = networks
        self._device = device
        self._clock = clock
        self._told: Mapping[str, MeshPeer] = {}
        self._ready: Collection[int] = frozenset()
        self._watch = TunnelWatch()
        self._nodes: Mapping[str, NodeId] = {}  # by public key
        self._compare_at = float("-inf")
        self._look, self._looked = anyio.Event(), anyio.Event()
        self._reading, self._ended = anyio.Lock(), False
        self.lack = ""

    @property
    def source(self) -> Source:
        """The source of what the fleet is told of this node's end."""
        return Source(name=MESH_HOSTS, every=lambda: (OWN,), rows=lambda _: (self._row(),))

    def _row(self) -> Row:
        return mesh_row(self._me.node, self._me.key, self._me.endpoint)

    async def serve(self) -> None:
        """Keeps the tunnels as the fleet's hosts need them, until cancelled. What cannot be read or told leaves what
        was told before."""
        while True:
            self._look = anyio.Event()
            try:
                await self.read()
                self._say("")
            except HawkerError as error:
                self._say(str(error))
            except OSError as error:
                self._say(f"its device does not answer: {error.strerror or error}")
            looked, self._looked = self._looked, anyio.Event()
            looked.set()
            with anyio.move_on_after(_EVERY_S):
                await self._look.wait()

    def _say(self, lack: str) -> None:
        if lack and lack != self.lack:
            _log.warning("machines of other hosts are not reached", extra={"reason": lack})
        self.lack = lack

    @property
    def silent(self) -> Iterator[tuple[NodeId, SilentTunnel]]:
        """Tunnels that carry nothing, also those to hosts that are down."""
        for key, tunnel in self._watch.silent.items():
            if key in self._nodes:
                yield self._nodes[key], tunnel

    async def known(self, network_id: int) -> None:
        """Waits until the way to the machines of this network is known, for a moment at most: a machine that begins
        finds the others."""
        with anyio.move_on_after(_WAIT_S):
            while network_id not in self._ready and not self.lack:
                self._look.set()
                await self._looked.wait()

    async def read(self) -> None:
        """Reads what the fleet says and sets the tunnels so, until `end`. Raises what a query raises, `Fault` where
        there is no device, and `OSError` when it does not answer."""
        async with self._reading:
            if not self._ended:
                await self._read()

    async def end(self) -> None:
        """No device is made from now on. Returns once none is being made: who removes it then leaves none."""
        async with self._reading:
            self._ended = True

    async def _read(self) -> None:
        if await in_thread(Pool.HOST, self._own.renewed):
            self._take(self._own.key)
        networks = frozenset(self._networks())
        wanted = await self._plan(networks) if networks else {}
        if not self._networks():  # the last machine went meanwhile
            networks, wanted = frozenset(), {}
        there = self._device.is_there
        due = there and self._clock.monotonic() >= self._compare_at
        if not wanted and not there:  # no device is made to be told nothing
            self._told = wanted
            self._watch = TunnelWatch()
        elif wanted != self._told or due or not there:
            await self._tell(wanted)
        self._ready = networks

    def _take(self, key: MeshKey) -> None:
        """Others hear of it at once; until they do, what they send in the old one's name is not understood."""
        self._me = replace(self._me, key=key.public)
        self._device.take(key)
        self._compare_at = float("-inf")
        self._changed()
        _log.info("the mesh has a new key", extra={"key": key.public})

    async def _plan(self, networks: Collection[int]) -> Mapping[str, MeshPeer]:
        hosts = [host for row in await self._rows(_HOSTS) if (host := _host(row)) is not None]
        self._nodes = {host.key: host.node for host in hosts}
        listed = msgspec.json.encode(sorted(networks)).decode()
        machines = await self._rows(_ADDRESSES, listed, MAX_ADDRESSES)
        found = [address for row in machines if (address := _address(row)) is not None]
        peers = await self._rows(_PEERS, listed, MAX_ADDRESSES)
        found += [replace(address, is_peer=True) for row in peers if (address := _address(row)) is not None]
        return plan_mesh(self._me, hosts, found)

    async def _tell(self, wanted: Mapping[str, MeshPeer]) -> None:
        mesh = await self._device.there()
        state = await in_thread(Pool.HOST, _read, mesh)
        change = difference(_known(state.peers, wanted), wanted)
        if not change.is_none:
            await in_thread(Pool.HOST, mesh.change, change, wanted)
        now = self._clock.monotonic()
        self._watch.look(wanted, state.traffic, now)
        self._told, self._compare_at = wanted, now + _COMPARE_EVERY_S

    async def _rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


def _read(mesh: TunnelDevice) -> MeshState:
    try:
        return mesh.read()
    except ValueError as error:
        raise Fault(f"the mesh's device says what is no answer: {error}") from error


def _known(peers: Mapping[str, MeshPeer], wanted: Mapping[str, MeshPeer]) -> Mapping[str, MeshPeer]:
    """What the device has, but for where it heard a peer last: that may be another place than the one it was told."""
    return {
        key: replace(peer, endpoint=wanted[key].endpoint) if key in wanted and peer.endpoint else peer
        for key, peer in peers.items()
    }


def _host(row: Sequence[Value]) -> MeshHost | None:
    """None for a row that no node of ours writes, and for a node that is reached from its own host only."""
    node, key, endpoint = map(str, row)
    host = MeshHost(node=NodeId(node), key=key, endpoint=endpoint)
    try:
        near = ip_address(host.address).is_loopback
        sound = not near and is_key(key) and 0 < int(endpoint.rpartition(":")[2]) < 1 << 16
    except ValueError:
        return None
    return host if sound else None


def _address(row: Sequence[Value]) -> MachineAddress | None:
    node, machine, network = row
    machine_id = str(machine)
    sound = len(machine_id) == 14 and _HEX_DIGITS.issuperset(machine_id)
    if not sound or not isinstance(network, int) or not 0 <= network < 1 << 32:
        return None
    return MachineAddress(NodeId(str(node)), MachineId(machine_id), network)
