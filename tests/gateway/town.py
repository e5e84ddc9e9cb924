"""A fleet over two regions: whole workers, what a broker knows of them, and a way to them that fails as told."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine, MachineParams, WaitState
from hawker.api.contract.machine_operation import WAIT_MACHINE, WaitQuery
from hawker.api.contract.volume import CREATE_VOLUME, CreateVolumeRequest, Volume, VolumeParams
from hawker.api.directory import KnownApp, KnownMachine, KnownVolume, Node, Peers
from hawker.api.failure import ConnectionLost, Unreachable
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, Unary
from hawker.auth.tokens import Revocations, Tokens
from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.fleet.app_bundle import AppBundler, vaults_of
from hawker.gateway.fan_out import FanOutLimits
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.lists import ALL_ROWS
from hawker.gateway.tokens import FleetRevocations, TokenHandlers
from hawker.ids import AppName, NodeId
from hawker.log import Secret
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import preferences
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import MACHINES
from hawker.record.node import NodeRecord, Revocation
from hawker.record.volume import VOLUMES
from hawker.sim.node.sim_worker import SimWorker, config_of
from hawker.sim.node.world import ROOM, MemoryWorld
from hawker.up.wiring import node_handlers

APP = "shop"
SHOP = AppParams(app_name=APP)
KEY = bytes(32)
ROOT = "hwk_root"
HERE, FAR = "mad", "ams"


@dataclass(slots=True)
class Host:
    """A node. It is `cut` off when nothing reaches it, `down` when the fleet knows that."""

    id: NodeId
    region: str
    worker: SimWorker
    handlers: Handlers
    cut: bool = False
    down: bool = False
    unheard: bool = False  # gossip has not spoken of it yet
    deaf: set[str] = field(default_factory=set)  # names of routes of which every answer is lost
    calls: list[tuple[str, str]] = field(default_factory=list)  # routes that were called, and in whose name
    waited: dict[str, float] = field(default_factory=dict)  # how long who called a route last would wait
    written: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """What the catalog says."""

    machines: Mapping[str, NodeId]
    volumes: Mapping[str, NodeId]
    apps: Sequence[KnownApp]


class Town:
    """Keeps `Known` and `Peers`. What the catalog says is what the nodes have, until it is `frozen`; `moved` are rows
    that say otherwise."""

    def __init__(self) -> None:
        self.hosts: dict[NodeId, Host] = {}
        self.moved: dict[str, NodeId] = {}
        self.frozen: Rows | None = None
        self.fenced: set[NodeId] = set()
        self.region = HERE

    def freeze(self) -> None:
        self.frozen = self._rows()

    def _rows(self) -> Rows:
        if self.frozen is not None:
            return self.frozen
        near = [host for host in self.hosts.values() if host.region == self.region]
        apps = [
            KnownApp(
                node=host.id,
                name=record.name,
                org=record.org,
                home=record.home is None,
                created_at=record.created_at,
            )
            for host in self.hosts.values()
            for _, record in host.worker.store.scan(APPS)
        ]
        reigns = {
            (host.id, record.name): 0 if record.home else 1 + record.reign
            for host in self.hosts.values()
            for _, record in host.worker.store.scan(APPS)
        }
        return Rows(
            machines={key: host.id for host in near for key, _ in host.worker.store.scan(MACHINES)},
            volumes={key: host.id for host in near for key, _ in host.worker.store.scan(VOLUMES)},
            apps=sorted(apps, key=lambda known: (-reigns[known.node, known.name], known.node)),
        )

    # Directory, AppIndex.

    def nodes(self) -> Sequence[Node]:
        return [found for node in self.hosts if (found := self.node(node)) is not None]

    def node(self, node_id: NodeId) -> Node | None:
        host = self.hosts.get(node_id)
        if host is None:
            return None
        parts, near = host.worker.parts, host.region == self.region
        used = parts.deps.table.used(host.worker.store)
        return Node(
            id=host.id,
            region=host.region,
            alive=not host.down and not host.unheard,
            unheard=host.unheard,
            labels={},
            drivers=("fake",),
            capacity=parts.room() if near else None,
            used=used if near else None,
        )

    def forgotten(self, node: NodeId) -> bool:
        return node in self.fenced

    def forget(self, host: Host) -> None:
        """A node that is gone for good."""
        del self.hosts[host.id]
        self.fenced.add(host.id)

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return self.moved.get(machine_id) or self._rows().machines.get(machine_id)

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return self.moved.get(volume_id) or self._rows().volumes.get(volume_id)

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return [known.node for known in self.app(app)]

    def home_of_app(self, app: AppName) -> NodeId | None:
        return next((known.node for known in self.app(app) if known.home), None)

    def apps(self, org: str | None = None) -> Sequence[KnownApp]:
        return [known for known in self._rows().apps if org in (None, known.org)]

    def app(self, name: AppName) -> Sequence[KnownApp]:
        return [known for known in self._rows().apps if known.name == name]

    def network_of(self, org: str, network: str) -> int | None:
        apps = [app for app in self._networked() if (app.org, app.network) == (org, network)]
        return min(apps, key=lambda app: app.created_at).network_id if apps else None

    def pairs_of(self, number: int) -> Sequence[tuple[str, str]]:
        return [(app.org, app.network) for app in self._networked() if app.network_id == number]

    def _networked(self) -> Sequence[AppRecord]:
        """As far as the catalog says so."""
        known = {app.name for app in self._rows().apps}
        records = (record for host in self.hosts.values() for _, record in host.worker.store.scan(APPS))
        return [record for record in records if record.name in known]

    def machines_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownMachine]:
        host = self.hosts[node]
        rows = [
            KnownMachine(
                id=record.id,
                name=record.name,
                state=record.state,
                version=record.version,
                image=record.image.digest,
                private_ip=record.network.private_ip,
                cordoned=record.cordoned,
                metadata=record.config.metadata or {},
                created_at=record.created_at,
                updated_at=record.updated_at,
            )
            for key, record in host.worker.store.scan(MACHINES)
            if host.region == self.region and record.app == app and key > after
        ]
        return rows[: None if limit == ALL_ROWS else limit]

    def volumes_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownVolume]:
        host = self.hosts[node]
        rows = [
            KnownVolume(
                id=record.id,
                name=record.name,
                state=record.state,
                size_gb=record.size_gb,
                machine=record.machine or "",
            )
            for key, record in host.worker.store.scan(VOLUMES)
            if host.region == self.region and record.app == app and key > after
        ]
        return rows[: None if limit == ALL_ROWS else limit]

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return self.frozen is None

    # Peers.

    def caller(self, node_id: NodeId, *, behalf: str) -> Caller:
        if node_id not in self.hosts:
            raise Unavailable(f"it is not known where node {node_id} is")
        return Wire(self.hosts[node_id], behalf)


class Wire(InProcessCaller):
    """Calls a host as HTTP would, down to what is lost."""

    def __init__(self, host: Host, behalf: str) -> None:
        async def written() -> str:
            host.written += 1
            return f"{host.id}:1:{host.written}"

        super().__init__(host.handlers, host.worker.parts.deps.clock, behalf, written)
        self._host, self._behalf = host, behalf

    async def call(self, route: Unary[Any, Any, Any, Any], **given: Any) -> Any:
        if self._host.cut:
            raise Unreachable("cut off")
        self._host.calls.append((route.name, self._behalf))
        self._host.waited[route.name] = given.get("timeout_s") or route.timeout_s
        answer = await super().call(route, **given)
        if route.name in self._host.deaf:
            raise ConnectionLost("the answer was lost")
        return answer


class NothingTold:
    """Keeps `ToldRevocations` where no node said anything."""

    def is_revoked(self, ids: Sequence[str]) -> bool:
        return False

    def revocation(self, token_id: str) -> Revocation | None:
        return None

    def revocations(self) -> Sequence[Revocation]:
        return ()


class Broker:
    """A broker of the town, and a client that calls it as HTTP does. It stands beside a node, in one process with it
    unless `apart`."""

    def __init__(self, town: Town, host: Host, *, apart: bool = False, grant: Grant | None = None) -> None:
        clock: Clock = host.worker.parts.deps.clock
        peers: Peers = town
        revoked = FleetRevocations(NothingTold(), Revocations(host.worker.store, clock))
        tokens = Tokens(Secret(ROOT), clock, revoked, lambda app: None)
        self.made = Gateway(
            town,
            peers,
            Beside(node=host.id, handlers=None if apart else host.handlers),
            clock,
            market=MarketHandlers(town, peers, preferences(), clock, limited=False),
            tokens=TokenHandlers(tokens, revoked, clock, lambda app: bool(town.app(AppName(app)))),
            patience=FanOutLimits(each_s=5, all_s=20),
        )
        self.handlers = self.made.handlers()
        self.api = Client(self.handlers, clock, grant)


class Client(InProcessCaller):
    def __init__(self, handlers: Handlers, clock: Clock, grant: Grant | None) -> None:
        super().__init__(handlers, clock, "ann")
        if grant is not None:
            self._grant = grant  # type: ignore[assignment]  # of any kind
        self.version: str | None = None
        self.metadata = CallMetadata()

    async def call(self, route: Unary[Any, Any, Any, Any], **given: Any) -> Any:
        self.metadata = CallMetadata()
        return await super().call(route, metadata=self.metadata, **given)

    def _made(self, *given: Any) -> Call[Any, Any, Any]:
        made: Call[Any, Any, Any] = super()._made(*given)
        return replace(made, version=self.version)

    async def app(self, name: str = APP, **body: Any) -> None:
        await self.call(CREATE_APP, body=CreateAppRequest(name=name, **body))

    async def machine(self, app: str = APP, *, region: str | None = None, **config: Any) -> Machine:
        body = CreateMachineRequest(config=config_of(**config), region=region, skip_launch=True)
        made: Machine = await self.call(CREATE_MACHINE, params=AppParams(app_name=app), body=body)
        params = MachineParams(app_name=app, machine_id=made.id)
        await self.call(WAIT_MACHINE, params=params, query=WaitQuery(state=(WaitState.STOPPED,)))
        return made

    async def volume(self, **body: Any) -> Volume:
        body = {"name": "data", "size_gb": 1, **body}
        made: Volume = await self.call(CREATE_VOLUME, params=SHOP, body=CreateVolumeRequest(**body))
        return made


def of_machine(machine_id: str) -> MachineParams:
    return MachineParams(app_name=APP, machine_id=machine_id)


def of_volume(volume_id: str) -> VolumeParams:
    return VolumeParams(app_name=APP, volume_id=volume_id)


@asynccontextmanager
async def town_of(directory: Path, *regions: str) -> AsyncIterator[Town]:
    """A node in each of these regions; its id tells which."""
    town = Town()
    async with AsyncExitStack() as stack:
        for number, region in enumerate(regions or (HERE, HERE, FAR), 1):
            host = await stack.enter_async_context(opened(directory, number, region))
            town.hosts[host.id] = host
        yield town
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def opened(directory: Path, number: int, region: str) -> AsyncIterator[Host]:
    node = NodeRecord(id=NodeId(f"{number:08x}"), region=region, created_at=0.0)
    room = msgspec.structs.replace(ROOM, memory_mib=4096)
    stall = MemoryWorld(directory / node.id, seed=number, room=room, node=node)
    async with stall.open() as worker:
        deps = worker.parts.deps
        bundler = AppBundler(deps.store, deps.secrets, deps.clock, node.id, vaults_of(lambda: (KEY,), deps.clock))
        handlers = node_handlers(worker.parts, bundler=bundler)
        revocations = Revocations(deps.store, deps.clock)
        tokens = Tokens(Secret(ROOT), deps.clock, revocations, lambda app: None)
        TokenHandlers(tokens, revocations, deps.clock, lambda app: True).bind(handlers)
        yield Host(id=node.id, region=region, worker=worker, handlers=handlers)
