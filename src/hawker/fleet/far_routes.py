"""The machines of other nodes that are reached from outside, and the addresses of apps, for the edge of this one: as
the catalog has them, of nodes that live. What is told of a machine's state is a hint; the gate on its own host knows.
Of other regions nothing is known but which hosts have machines of an app there, and with which sets of services.
"""

from collections.abc import Callable, Collection, Sequence
from math import ceil
from zlib import crc32

import msgspec
from msgspec.structs import replace

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.config import PUBLISH, Service
from hawker.config.effective import SERVICE_CHECK
from hawker.errors import HawkerError
from hawker.feed import EVERYWHERE, AppAddress, GatePlace, MachineRoute, RouteHealth
from hawker.fleet.failover import CatalogQueries
from hawker.fleet.pages import PagedQuery, Pages, all_rows, each_of, pages
from hawker.ids import AppName, MachineId, NodeId
from hawker.log import bind
from hawker.machine import GONE, State

MAX_MACHINES = 20_000
"""The most machines of other nodes that an edge is told of."""
MAX_HOSTS = 4
"""The most hosts that an edge is told of for an app in each other region, for each set of services that its machines
there have."""
MAX_SETS = 16
"""The most sets of services that an edge is told of for an app in each other region."""
_EVERY_S, _QUERY_S = 1.0, 5.0
_REGIONS_EVERY_S = 5.0
"""The seconds between two readings of what other regions serve: it changes with configs, and is read from rows of the
whole fleet."""
_IN_ORDER = "WHERE {after} ORDER BY node, app, ip LIMIT ?"
_ADDRESSES = PagedQuery(
    text=f"SELECT app, ip, shared, created_at, node FROM app_ips {_IN_ORDER}",
    key=("node", "app", "ip"),
    places=(4, 0, 1),
)
_PRIVATE = replace(_ADDRESSES, text=f"SELECT app, ip, 0, created_at, node FROM private_ips {_IN_ORDER}")
_REACHED = (
    "(json_extract(machines.metadata, ?) = ? OR machines.app IN (SELECT app FROM app_ips) "
    "OR machines.app IN (SELECT app FROM private_ips))"
)
_OF_APP = "(SELECT json_extract(record, '$.{}') FROM apps WHERE apps.name = machines.app ORDER BY home DESC LIMIT 1)"
_MACHINES = (
    # no more of the value than tells that it is ours: it is a tenant's
    "SELECT node, id, app, state, version, cordoned, created_at, substr(json_extract(metadata, ?), 1, 32), "
    f"{_OF_APP.format('network_id')}, {_OF_APP.format('org')} "
    f"FROM machines WHERE node <> ? AND {_REACHED} ORDER BY id, generation DESC LIMIT ?"
)
_SERVICES = PagedQuery(
    text="SELECT services.node, services.machine, services.number, services.config FROM services "
    "JOIN machines ON machines.node = services.node AND machines.id = services.machine "
    f"WHERE services.node <> ? AND {_REACHED} AND {{after}} "
    "ORDER BY services.node, services.machine, services.number LIMIT ?",
    key=("services.node", "services.machine", "services.number"),
    places=(0, 1, 2),
)
_HEALTH = PagedQuery(
    text="SELECT health.node, health.machine, health.status, health.name FROM health "
    "JOIN machines ON machines.node = health.node AND machines.id = health.machine "
    f"WHERE health.node <> ? AND {_REACHED} AND substr(health.name, 1, ?) = ? AND {{after}} "
    "ORDER BY health.node, health.machine, health.name LIMIT ?",
    key=("health.node", "health.machine", "health.name"),
    places=(0, 1, 3),
)
_OF_FOUND = _OF_APP.replace("machines.app", "found.app")
_REGIONS = PagedQuery(
    text="SELECT found.node, found.app, found.publish, found.services, found.region, "
    f"{_OF_FOUND.format('network_id')}, {_OF_FOUND.format('org')} "
    # of a host's machines of the app that have the same services one, published if any of them is
    "FROM (SELECT served.node, app, max(iif(publish = ?, publish, '')) AS publish, services, nodes.region "
    "FROM nodes CROSS JOIN served_machines AS served ON served.node = nodes.node "  # of one region alone: no row
    "WHERE nodes.region NOT IN (?, '') "
    "AND (publish = ? OR app IN (SELECT app FROM app_ips) OR app IN (SELECT app FROM private_ips)) "
    "AND {after} GROUP BY served.node, app, services) AS found "
    "ORDER BY found.app, found.node, found.services LIMIT ?",
    key=("app", "served.node", "services"),
    places=(1, 0, 3),
)
_WORST = {"critical": RouteHealth.CRITICAL, "warning": RouteHealth.UNASKED}
_log = bind("hawker.edge")

_STATES = frozenset(State)

_Place = tuple[str, str]  # node, machine
_SERVED = msgspec.json.Decoder(tuple[Service, ...])


class FarRoutes:
    """`gate_of` says where the edge of a node that lives lets in for an app, None for a node that does not; `wanted`
    whether this node's edge serves anybody outside, and `networks` are those whose machines it may serve; `tell` takes
    all of them, whenever they are read, with all addresses of apps. `round_trip_s` is how far a node is, 0 where that
    was not measured."""

    def __init__(
        self,
        me: NodeId,
        region: str,
        catalog: CatalogQueries,
        gate_of: Callable[[NodeId, AppName], GatePlace | None],
        wanted: Callable[[], bool],
        networks: Callable[[], Collection[int]],
        tell: Callable[[Sequence[MachineRoute], Sequence[AppAddress]], None],
        clock: Clock,
        round_trip_s: Callable[[NodeId], float] = lambda node: 0.0,
    ) -> None:
        self._me = me
        self._region = region
        self._round_trip_s = round_trip_s
        self._catalog = catalog
        self._gate_of = gate_of
        self._wanted = wanted
        self._networks = networks
        self._tell = tell
        self._clock = clock

    async def serve(self) -> None:
        """Tells the edge of machines elsewhere, until cancelled. What cannot be read leaves what was told before; that
        there is nobody is told, too."""
        told, abroad, again_at = True, list[MachineRoute](), 0.0
        while True:
            try:
                addresses = await self.addresses()
                if self._wanted() or any(each.is_private for each in addresses):
                    if self._clock.monotonic() >= again_at:
                        abroad = await self.read_regions()
                        again_at = self._clock.monotonic() + _REGIONS_EVERY_S
                    self._tell([*await self.read(), *abroad], addresses)
                    told = True
                elif told:
                    self._tell((), ())
                    told = False
            except HawkerError as error:
                _log.warning("routes to other nodes cannot be read", extra={"error": str(error)})
            await self._clock.sleep(_EVERY_S)

    async def addresses(self) -> list[AppAddress]:
        """The addresses of apps, in the order in which they were given; private ones of the networks that are here.
        Raises what a query raises."""
        found = await self._addresses(_ADDRESSES)
        inside = await self._addresses(_PRIVATE)
        networks = self._networks()
        return [*found, *(each for each in inside if each.is_private and each.network_id in networks)]

    async def read(self) -> list[MachineRoute]:
        """The routes to machines of other nodes of this region, at most `MAX_MACHINES`. Raises what a query raises."""
        published = (self._me, f"$.{PUBLISH}", EVERYWHERE)
        machines = await self._rows(_MACHINES, f"$.{PUBLISH}", *published, MAX_MACHINES)
        if not machines:
            return []
        services = await self._services(published)
        health: dict[_Place, RouteHealth] = {}
        checks = self._pages(_HEALTH, *published, len(SERVICE_CHECK), SERVICE_CHECK)
        async for node, machine, status, _ in each_of(checks):
            at = (str(node), str(machine))
            health[at] = max(
                health.get(at, RouteHealth.PASSING), _WORST.get(str(status), RouteHealth.PASSING), key=_rank
            )
        found: dict[MachineId, MachineRoute] = {}
        for row in machines:
            at = (str(row[0]), str(row[1]))
            gate = self._gate_of(NodeId(at[0]), AppName(str(row[2])))
            if gate is not None and at in services and (route := _route(row, gate, services[at], health.get(at))):
                found.setdefault(route.id, route)
        return list(found.values())

    async def read_regions(self) -> list[MachineRoute]:
        """The routes to other regions: for each app and region some hosts that have machines of it. An app's process
        groups have different services, so there are some hosts for each set of services. Raises what a query raises."""
        found: dict[tuple[str, str], dict[str, list[MachineRoute]]] = {}
        away_s: dict[str, float] = {}
        about = (EVERYWHERE, self._region, EVERYWHERE)
        async for row in each_of(self._pages(_REGIONS, *about, most_rows=MAX_MACHINES)):
            node, app = NodeId(str(row[0])), AppName(str(row[1]))
            gate = self._gate_of(node, app)
            route = None if gate is None else stand_in(row, gate)
            if route is not None:
                found.setdefault((route.region, app), {}).setdefault(str(row[3]), []).append(route)
                took_s = self._round_trip_s(node)
                if took_s:
                    away_s[route.region] = min(took_s, away_s.get(route.region, took_s))
        return [
            replace(route, away_ms=_in_steps(away_s.get(region, 0.0)))
            for (region, _), sets in found.items()
            for routes in sorted(sets.values(), key=len, reverse=True)[:MAX_SETS]
            for route in sorted(routes, key=self._drawn)[:MAX_HOSTS]
        ]

    def _drawn(self, route: MachineRoute) -> int:
        """Each host of ours asks others of theirs first."""
        assert route.gate is not None, "it is a host's"
        return crc32(f"{self._me} {route.app}@{route.gate.node}".encode())

    async def _addresses(self, query: PagedQuery) -> list[AppAddress]:
        rows = await all_rows(self._catalog, query, timeout_s=_QUERY_S)
        rows.sort(key=lambda row: (_float(row[3]), str(row[0])))
        return [AppAddress(app=AppName(str(app)), ip=str(ip), shared=bool(shared)) for app, ip, shared, *_ in rows]

    async def _services(self, published: Sequence[Value]) -> dict[_Place, list[Service]]:
        """Of each machine all services, by their numbers. One that lacks a service, or has one that no node of ours
        writes, is left out: a number would mean another service at its own host."""
        found: dict[_Place, list[Service]] = {}
        broken: set[_Place] = set()
        async for node, machine, number, config in each_of(self._pages(_SERVICES, *published)):
            at = (str(node), str(machine))
            services = found.setdefault(at, [])
            try:
                services.append(msgspec.json.decode(str(config), type=Service))
            except msgspec.DecodeError:
                broken.add(at)
            if number != len(services) - 1:
                broken.add(at)
        return {at: services for at, services in found.items() if at not in broken}

    def _pages(self, query: PagedQuery, *params: Value, most_rows: int | None = None) -> Pages:
        return pages(self._catalog, query, *params, timeout_s=_QUERY_S, most_rows=most_rows)

    async def _rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


def _route(
    row: Sequence[Value], gate: GatePlace, services: Sequence[Service], health: RouteHealth | None
) -> MachineRoute | None:
    _, machine_id, app, state, version, cordoned, created_at, publish, network, org = row
    if state not in _STATES or state in GONE:
        return None
    return MachineRoute(
        id=MachineId(str(machine_id)),
        app=AppName(str(app)),
        state=State(str(state)),
        version=str(version),
        services=tuple(services),
        health=health or RouteHealth.PASSING,
        cordoned=bool(cordoned),
        publish=EVERYWHERE if publish == EVERYWHERE else "",
        autostart=any(each.autostart is not False for each in services),
        created_at=_float(created_at),
        gate=gate,
        network=network if isinstance(network, int) else 0,
        org=org if isinstance(org, str) else "",
    )


def stand_in(row: Sequence[Value], gate: GatePlace) -> MachineRoute | None:
    """The route that stands for an app's machines in another region; None for a row that no node of ours writes."""
    _, app, publish, services, region, network, org = row
    name = AppName(str(app))
    try:
        served = _SERVED.decode(str(services))
    except msgspec.DecodeError:
        return None
    return MachineRoute(
        id=MachineId(f"{name}@{gate.node}/{crc32(str(services).encode()):08x}"),
        app=name,
        state=State.STARTED,
        version="",
        services=served,
        publish=EVERYWHERE if publish == EVERYWHERE else "",
        gate=gate,
        network=network if isinstance(network, int) else 0,
        org=org if isinstance(org, str) else "",
        region=str(region),
    )


def _in_steps(seconds: float) -> int:
    """Milliseconds, the next power of two: small changes change nothing."""
    return 1 << max(0, ceil(seconds * 1000) - 1).bit_length() if seconds else 0


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _rank(health: RouteHealth) -> int:
    return list(RouteHealth).index(health)
