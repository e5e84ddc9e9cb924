"""What the fleet knows of names in the networks that have machines here: apps and machines of other nodes that live, as
the catalog has them. Machines of other regions are not in it.
"""

from collections.abc import Callable, Collection, Sequence
from ipaddress import AddressValueError

import msgspec

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fleet.failover_view import CatalogQueries
from hawker.ids import AppName, MachineId, NodeId
from hawker.log import bind
from hawker.machine import State
from hawker.names import NamedApp, NamedMachine, group_of

_EVERY_S, _QUERY_S = 1.0, 5.0
_APPS = (
    "SELECT DISTINCT name, json_extract(record, '$.network_id') FROM apps "
    "WHERE json_extract(record, '$.network_id') IN (SELECT value FROM json_each(?))"
)
_MACHINES = (
    "SELECT machines.node, id, app, private_ip, state, metadata, nodes.region, machines.name FROM machines "
    "JOIN nodes ON nodes.node = machines.node "
    "WHERE machines.node <> ? AND app IN (SELECT value FROM json_each(?)) ORDER BY id, generation DESC"
)
_METADATA = msgspec.json.Decoder(dict[str, str])
_log = bind("hawker.dns")


class FleetNames:
    """`networks` are those with machines here; `lives` says whether a node is believed to; `tell` takes all that is
    known, whenever it is read."""

    def __init__(
        self,
        me: NodeId,
        catalog: CatalogQueries,
        networks: Callable[[], Collection[int]],
        lives: Callable[[NodeId], bool],
        tell: Callable[[Sequence[NamedApp], Sequence[NamedMachine]], None],
        clock: Clock,
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._networks = networks
        self._lives = lives
        self._tell = tell
        self._clock = clock

    async def serve(self) -> None:
        """Until cancelled. What cannot be read leaves what was told before."""
        while True:
            try:
                await self.read()
            except HawkerError as error:
                _log.warning("names of other nodes cannot be read", extra={"error": str(error)})
            await self._clock.sleep(_EVERY_S)

    async def read(self) -> None:
        """Raises what a query raises."""
        networks = sorted(self._networks())
        if not networks:
            return
        apps = [_app(row) for row in await self._rows(_APPS, _json(networks))]
        rows = await self._rows(_MACHINES, self._me, _json([app.name for app in apps]))
        found: dict[MachineId, NamedMachine] = {}
        for row in rows:
            machine = _machine(row)
            if machine is not None and machine.network_id in networks and self._lives(machine.node):
                found.setdefault(machine.id, machine)
        self._tell(apps, tuple(found.values()))

    async def _rows(self, query: str, *params: Value) -> tuple[tuple[Value, ...], ...]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


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
            metadata=said,
            name=name,
        )
        return machine if ip.startswith("fdaa:") and machine.network_id >= 0 else None
    except (AddressValueError, msgspec.DecodeError):
        return None


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()
