"""What the fleet knows of names in the networks that have machines here: apps and machines of other nodes that live, as
the catalog has them. Those of other regions are not in it: a living node there is asked, while a network of here has
machines there (`FarNames`).
"""

from collections.abc import Callable, Collection, Sequence
from ipaddress import AddressValueError

import anyio
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.private_network import (
    LIST_PRIVATE_NAMES,
    MOST_MACHINES,
    MOST_NETWORKS,
    PrivateName,
    PrivateNames,
    PrivateNamesRequest,
)
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fleet.failover import CatalogQueries
from hawker.fleet.pages import PagedQuery, each_of, pages
from hawker.host.address import peer_ip
from hawker.ids import AppName, MachineId, NodeId
from hawker.log import bind
from hawker.machine import State
from hawker.names import NamedApp, NamedMachine, NamedPeer, group_of, named_pairs

_EVERY_S, _QUERY_S = 1.0, 5.0
_APPS = (
    "SELECT DISTINCT name, json_extract(record, '$.network_id') FROM apps "
    "WHERE json_extract(record, '$.network_id') IN (SELECT value FROM json_each(?))"
)
_MACHINES = PagedQuery(
    text="SELECT machines.node, id, app, private_ip, state, metadata, nodes.region, machines.name, generation "
    "FROM machines JOIN nodes ON nodes.node = machines.node "
    "WHERE machines.node <> ? AND app IN (SELECT value FROM json_each(?)) AND {after} "
    "ORDER BY machines.node, machines.id LIMIT ?",
    key=("machines.node", "machines.id"),
    places=(0, 1),
)
_PEERS = (
    "SELECT name, id, network FROM peers WHERE node <> ? AND network IN (SELECT value FROM json_each(?)) LIMIT 10000"
)
_REGIONS = (
    "SELECT DISTINCT nodes.region FROM addresses JOIN nodes ON nodes.node = addresses.node "
    "WHERE nodes.region <> ? AND addresses.network IN (SELECT value FROM json_each(?))"
)
_FAR_EVERY_S, _FAR_KEPT_S, _ASK_S, _MOST_ASKED = 2.0, 60.0, 0.4, 2
_METADATA = msgspec.json.Decoder(dict[str, str])
_log = bind("hawker.dns")


class FarNames:
    """`nodes_in` are living nodes of a region; `caller` leads to one. Also answers what nodes of other regions ask."""

    def __init__(
        self,
        me: NodeId,
        region: str,
        catalog: CatalogQueries,
        networks: Callable[[], Collection[int]],
        nodes_in: Callable[[str], Sequence[NodeId]],
        lives: Callable[[NodeId], bool],
        caller: Callable[[NodeId, str], Caller],
        clock: Clock,
    ) -> None:
        self._me = me
        self._region = region
        self._reading = _Reading(catalog, lives)
        self._networks = networks
        self._nodes_in = nodes_in
        self._caller = caller
        self._clock = clock
        self._heard: dict[str, tuple[float, Sequence[NamedMachine]]] = {}

    def known(self) -> Sequence[NamedMachine]:
        """The machines of other regions, by region; what was heard last counts for a minute while nobody there
        answers."""
        since = self._clock.monotonic() - _FAR_KEPT_S
        return [machine for at, machines in self._heard.values() if at >= since for machine in machines]

    async def serve(self) -> None:
        """Asks other regions for their machines again and again, until cancelled."""
        while True:
            try:
                await self.ask()
            except HawkerError as error:
                _log.warning("regions with names of other nodes cannot be read", extra={"error": str(error)})
            await self._clock.sleep(_FAR_EVERY_S)

    async def ask(self) -> None:
        """Asks all regions at once for their machines. Raises what a query raises."""
        networks = sorted(self._networks())[:MOST_NETWORKS]
        rows = await self._reading.rows(_REGIONS, self._region, _json(networks)) if networks else ()
        regions = [str(region) for (region,) in rows]
        self._heard = {region: heard for region, heard in self._heard.items() if region in regions}
        async with anyio.create_task_group() as tasks:
            for region in regions:
                tasks.start_soon(self._ask_region, region, networks)

    async def _ask_region(self, region: str, networks: Sequence[int]) -> None:
        request = PrivateNamesRequest(networks=tuple(networks))
        for node in self._nodes_in(region)[:_MOST_ASKED]:
            try:
                answer = await self._caller(node, self._me).call(LIST_PRIVATE_NAMES, body=request, timeout_s=_ASK_S)
            except HawkerError as error:
                _log.debug("a node of another region does not tell names", extra={"node": node, "error": str(error)})
                continue
            found = (_far(each, region) for each in answer.machines)
            wanted = frozenset(networks)
            machines = [each for each in found if each is not None and each.network_id in wanted]
            self._heard[region] = self._clock.monotonic(), machines
            return

    @answers(LIST_PRIVATE_NAMES)
    async def hand(self, call: Call[NoParams, NoQuery, PrivateNamesRequest]) -> PrivateNames:
        _, machines = await self._reading.of(call.body.networks)
        told = (
            PrivateName(
                id=each.id,
                app=each.app,
                ip=each.ip,
                node=each.node,
                started=each.started,
                metadata=each.metadata,
                name=each.name,
            )
            for each in machines[:MOST_MACHINES]
        )
        return PrivateNames(region=self._region, machines=tuple(told))


class FleetNames:
    """`networks` are those with machines here; `lives` says whether a node is believed to; `far` are machines of other
    regions; `tell` takes all that is known, whenever it is read, and `tell_peers` people's computers."""

    def __init__(
        self,
        me: NodeId,
        catalog: CatalogQueries,
        networks: Callable[[], Collection[int]],
        lives: Callable[[NodeId], bool],
        tell: Callable[[Sequence[NamedApp], Sequence[NamedMachine]], None],
        clock: Clock,
        far: Callable[[], Sequence[NamedMachine]] = tuple,
        tell_peers: Callable[[Sequence[NamedPeer]], None] = lambda _: None,
    ) -> None:
        self._me = me
        self._tell_peers = tell_peers
        self._reading = _Reading(catalog, lives, me)
        self._networks = networks
        self._tell = tell
        self._far = far
        self._clock = clock

    async def serve(self) -> None:
        """Tells the resolver of names of other nodes, until cancelled. What cannot be read leaves what was told
        before."""
        while True:
            try:
                await self.read()
            except HawkerError as error:
                _log.warning("names of other nodes cannot be read", extra={"error": str(error)})
            await self._clock.sleep(_EVERY_S)

    async def read(self) -> None:
        """Reads the names of other nodes for the networks that are here. Raises what a query raises."""
        networks = self._networks()
        if not networks:
            return
        apps, near = await self._reading.of(networks)
        there = {each.id for each in near}
        peers = await self._reading.rows(_PEERS, self._me, _json(sorted(networks)))
        self._tell_peers([peer for row in peers if (peer := _peer(row)) is not None])
        self._tell(apps, (*near, *(each for each in self._far() if each.id not in there)))


class _Reading:
    """Of the catalog: apps of networks, and their machines on living nodes but `me`."""

    def __init__(self, catalog: CatalogQueries, lives: Callable[[NodeId], bool], me: NodeId | None = None) -> None:
        self._catalog = catalog
        self._lives = lives
        self._me = me or ""

    async def of(self, networks: Collection[int]) -> tuple[Sequence[NamedApp], Sequence[NamedMachine]]:
        apps = [_app(row) for row in await self.rows(_APPS, _json(sorted(networks)))]
        found: dict[MachineId, tuple[int, NamedMachine]] = {}
        names = _json([app.name for app in apps])
        async for *told, generation in each_of(pages(self._catalog, _MACHINES, self._me, names, timeout_s=_QUERY_S)):
            machine = _machine(tuple(told))
            if machine is not None and machine.network_id in networks and self._lives(machine.node):
                number = generation if isinstance(generation, int) else 0
                there = found.get(machine.id)
                if there is None or number > there[0]:
                    found[machine.id] = number, machine
        return apps, tuple(machine for _, (_, machine) in sorted(found.items()))

    async def rows(self, query: str, *params: Value) -> tuple[tuple[Value, ...], ...]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


def _far(told: PrivateName, region: str) -> NamedMachine | None:
    """None for what no node of ours tells."""
    state, metadata = State.STARTED if told.started else "", _json(told.metadata)
    return _machine((told.node, told.id, told.app, told.ip, state, metadata, region, told.name))


def _peer(row: tuple[Value, ...]) -> NamedPeer | None:
    """None for a row that no node of ours writes."""
    name, peer_id, network = row
    try:
        return NamedPeer(name=str(name), ip=str(peer_ip(int(network or 0), MachineId(str(peer_id)))))
    except (ValueError, AssertionError, IndexError):
        return None


def _app(row: tuple[Value, ...]) -> NamedApp:
    name, network_id = row
    return NamedApp(name=AppName(str(name)), network_id=int(network_id) if isinstance(network_id, int) else 0)


def _machine(row: tuple[Value, ...]) -> NamedMachine | None:
    """None for a row that no node of ours writes: it is nobody's name."""
    node, machine_id, app, ip, state, metadata, region, name = map(str, row)
    try:
        said = _METADATA.decode(metadata)
        machine = NamedMachine(
            id=MachineId(machine_id),
            app=AppName(app),
            ip=ip,
            node=NodeId(node),
            region=region,
            started=state == State.STARTED,
            group=group_of(said),
            metadata=named_pairs(said),
            name=name,
        )
        return machine if ip.startswith("fdaa:") and machine.network_id >= 0 else None
    except (AddressValueError, msgspec.DecodeError):
        return None


def _json(values: object) -> str:
    return msgspec.json.encode(values).decode()
