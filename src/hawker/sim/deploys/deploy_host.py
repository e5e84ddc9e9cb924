"""Hosts over which an app is deployed: each is a worker's own code with a broker beside it, and the voters and
coordinators of deploys, over a store in memory and a played host. What a node published is what it has; whether another
one lives each finds out by itself, some seconds late.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.deploy import ANNOUNCE_TERM
from hawker.api.contract.machine import CREATE_MACHINE
from hawker.api.directory import KnownApp, KnownMachine, KnownVolume, Node
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call
from hawker.auth.tokens import Revocations, Tokens
from hawker.deploys.term_fence import GUARDED
from hawker.fsm.contract import Flow, Step
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import BesidePeers
from hawker.gateway.tokens import TokenHandlers
from hawker.ids import AppName, MachineId, NodeId
from hawker.log import Secret
from hawker.market.handlers import MarketHandlers
from hawker.market.preferences import preferences
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import MACHINES
from hawker.record.node import used
from hawker.record.volume import VOLUMES
from hawker.sim.fleet.network import SimPeers
from hawker.sim.moves.move_host import MoveFleet, MoveHost, MoveWorld, SimOtherNodes
from hawker.sim.node.kit import SOUND as SOUND_WORKER
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.up.fleet_wiring import deploy_watch_of
from hawker.up.wiring import catch_up_of, node_handlers
from hawker.value_object import ValueObject

REGIONS = ("mad", "mad", "ams", "lhr")
DOWN_S = 6.5
"""After so long without a word a node counts as down."""


def _as_it_is(caller: Caller) -> Caller:
    return caller


class DeployKit(ValueObject, frozen=True):
    """What a node that deploys is made of. `moves` makes its calls as a client, `votes` those to the voters of a
    deploy; `answers` changes what it answers others. Each is called in every life."""

    worker: WorkerKit = SOUND_WORKER
    moves: Callable[[Caller], Caller] = _as_it_is
    votes: Callable[[Caller], Caller] = _as_it_is
    answers: Callable[[Handlers, SimWorker], None] = lambda handlers, worker: None


SOUND = DeployKit()


class DeployWatches:
    """Who looks on: at each place of a deploy's flow that a host passes, at each change that one sends to a machine or
    term that it announces, and at each change that a node makes. The last is told when it comes, and says who is to
    hear that it is done."""

    def __init__(self) -> None:
        self.passes: Callable[[NodeId, str], None] = lambda node, place: None
        self.sends: Callable[[NodeId, Any, dict[str, Any]], None] = lambda node, route, options: None
        self.comes: Callable[[NodeId, Any, Call[Any, Any, Any]], Callable[[], None]] = lambda *come: lambda: None


class DeployFleet(MoveFleet, frozen=True):
    """`heard` is when a node last heard of another, in virtual seconds; `doubted` until when the others take one for
    down, whatever they hear."""

    parts: DeployKit = SOUND
    heard: dict[tuple[NodeId, NodeId], float] = msgspec.field(default_factory=dict)
    doubted: dict[NodeId, float] = msgspec.field(default_factory=dict)
    hosts: "dict[NodeId, DeployHost]" = msgspec.field(default_factory=dict)  # type: ignore[assignment]  # all of this kind
    watches: DeployWatches = msgspec.field(default_factory=DeployWatches)

    def gossip(self) -> None:
        """Every node that is up hears of those that it can reach both ways."""
        network = self.call_network
        up = [host.id for host in self.hosts.values() if host.worker is not None]
        for one in up:
            for other in up:
                if not network.is_cut(one, other) and not network.is_cut(other, one):
                    self.heard[one, other] = network.clock.monotonic()

    def lives(self, viewer: NodeId, node: NodeId) -> bool:
        now = self.call_network.clock.monotonic()
        if viewer != node and now < self.doubted.get(node, 0.0):
            return False
        return viewer == node or now - self.heard.get((viewer, node), -DOWN_S) < DOWN_S


class DeployWorld(MoveWorld):
    meets_fleet = True


class DeployHost(MoveHost):
    """`broker` answers clients while the host is up."""

    world_type = DeployWorld
    broker: InProcessCaller

    def __init__(self, fleet: DeployFleet, number: int, seed: int) -> None:
        kit = replace(fleet.kit, flows=lambda: [_watched(flow, self._passes) for flow in fleet.kit.flows()])
        super().__init__(fleet, number, seed, REGIONS[number - 1], kit)
        self.fleet = fleet

    def _passes(self, place: str) -> None:
        self.fleet.watches.passes(self.id, place)

    async def begin(self, tasks: TaskGroup) -> None:
        """A new life has not heard of anybody yet."""
        if self.worker is None:
            for pair in [pair for pair in self.fleet.heard if pair[0] == self.id]:
                del self.fleet.heard[pair]
        await super().begin(tasks)

    def meet(self, worker: SimWorker) -> Handlers:
        deps, clock, kit = worker.parts.deps, self.world.clock, self.fleet.parts
        nodes = DeployNodes(self.fleet, worker)
        deps.others.meet(nodes)
        handlers = node_handlers(worker.parts, bundler=nodes.bundler)
        kit.answers(handlers, worker)
        for route in GUARDED:
            handlers.wrap(route, partial(self._answers, route))
        directory = DeployDirectory(self.fleet, self.id)
        peers = BesidePeers(self.id, handlers, clock, SimPeers(self.fleet.call_network, self.id))
        revoked = Revocations(deps.store, clock)
        tokens = Tokens(Secret("hwk_root"), clock, revoked, lambda app: None)
        about_tokens = TokenHandlers(tokens, revoked, clock, lambda app: True)
        about_tokens.bind(handlers)
        market = MarketHandlers(directory, peers, preferences(), clock, limited=False)
        beside = Beside(node=self.id, handlers=handlers)
        answers = Gateway(directory, peers, beside, clock, market=market, tokens=about_tokens).handlers()
        self.broker = InProcessCaller(answers, clock, "ann")
        seen: Any = _SeenCaller(InProcessCaller(answers, clock, "deploy"), self)
        deps.fleet.meet(kit.moves(seen))
        worker.tasks.start_soon(deploy_watch_of(worker.parts).serve)
        worker.tasks.start_soon(catch_up_of(worker.parts).serve)
        return handlers

    async def _answers(self, route: Any, call: Call[Any, Any, Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
        if call.deploy_term is None:
            return await answer(call)
        done = self.fleet.watches.comes(self.id, route, call)
        answered = await answer(call)
        done()
        return answered


class _SeenCaller:
    """What a host's deploys call machines' nodes and voters by, in one life."""

    def __init__(self, inner: Caller, host: "DeployHost") -> None:
        self._inner, self._host = inner, host

    async def call(self, route: Any, **options: Any) -> Any:
        if route in (CREATE_MACHINE, ANNOUNCE_TERM) or options.get("deploy_term") is not None:
            self._host.fleet.watches.sends(self._host.id, route, options)
        return await self._inner.call(route, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _watched(flow: Flow[Any], passes: Callable[[str], None]) -> Flow[Any]:
    """The flow, of which each edge of a step and each point inside one is told."""

    def step(row: Step) -> Step:
        name = f"{flow.name}.{row.name}"

        async def do(context: Any) -> Any:
            passes(f"{name} before")
            found = await row.do(_WatchedContext(context, lambda point: passes(f"{name} {point}")))
            passes(f"{name} after")
            return found

        return replace(row, do=do)

    return replace(flow, steps=tuple(map(step, flow.steps))) if flow.name.startswith("deploy") else flow


class _WatchedContext:
    def __init__(self, context: Any, passes: Callable[[str], None]) -> None:
        self._context, self._passes = context, passes

    def reach(self, point: str) -> None:
        self._context.reach(point)
        self._passes(point)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class DeployNodes(SimOtherNodes):
    def __init__(self, fleet: DeployFleet, worker: SimWorker) -> None:
        super().__init__(fleet, worker)
        self.fleet = fleet

    def caller(self, node: NodeId) -> Caller:
        seen: Any = _SeenCaller(super().caller(node), self.fleet.hosts[self.me])
        return self.fleet.parts.votes(seen)

    def nodes(self) -> Sequence[Node]:
        return DeployDirectory(self.fleet, self.me).nodes()


class DeployDirectory:
    """Keeps `gateway.Known` for one node. The catalog of a played fleet is never late."""

    def __init__(self, fleet: DeployFleet, me: NodeId) -> None:
        self._fleet = fleet
        self._me = me
        self.region = fleet.hosts[me].world.node.region

    def nodes(self) -> Sequence[Node]:
        return [found for node in self._fleet.hosts if (found := self.node(node)) is not None]

    def node(self, node_id: NodeId) -> Node | None:
        host = self._fleet.hosts.get(node_id)
        if host is None:
            return None
        world = host.world
        return Node(
            id=host.id,
            region=world.node.region,
            alive=self._fleet.lives(self._me, host.id),
            labels={},
            drivers=("fake",),
            capacity=world.room,
            used=used(world.store),
        )

    def forgotten(self, node: NodeId) -> bool:
        return False

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return self._owner(lambda host: host.world.store.get(MACHINES, MachineId(machine_id)) is not None)

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return self._owner(lambda host: host.world.store.get(VOLUMES, volume_id) is not None)

    def _owner(self, has: Callable[[MoveHost], bool]) -> NodeId | None:
        return next((host.id for host in self._fleet.hosts.values() if has(host)), None)

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return [known.node for known in self.app(app)]

    def home_of_app(self, app: AppName) -> NodeId | None:
        return next((known.node for known in self.app(app) if known.home), None)

    def apps(self, org: str | None = None) -> Sequence[KnownApp]:
        found = [
            KnownApp(node=host.id, name=record.name, org=record.org, home=record.home is None)
            for host in self._fleet.hosts.values()
            for _, record in host.world.store.scan(APPS)
            if org in (None, record.org)
        ]
        return sorted(found, key=lambda known: (not known.home, known.node))

    def app(self, name: AppName) -> Sequence[KnownApp]:
        return [known for known in self.apps() if known.name == name]

    def network_of(self, org: str, network: str) -> int | None:
        found = [each for each in self._records() if (each.org, each.network) == (org, network)]
        return min(found, key=lambda each: each.created_at).network_id if found else None

    def pairs_of(self, number: int) -> Sequence[tuple[str, str]]:
        return [(each.org, each.network) for each in self._records() if each.network_id == number]

    def _records(self) -> list[AppRecord]:
        return [record for host in self._fleet.hosts.values() for _, record in host.world.store.scan(APPS)]

    def machines_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownMachine]:
        return [
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
            for key, record in self._fleet.hosts[node].world.store.scan(MACHINES)
            if record.app == app and key > after
        ]

    def volumes_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownVolume]:
        return []

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        return True
