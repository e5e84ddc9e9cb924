"""Hosts over which an app is deployed: each is a worker's own code with a broker beside it, and the voters and
coordinators of deploys, over a store in memory and a played host. What a node published is what it has; whether another
one lives each finds out by itself, some seconds late.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hawker.api.caller import Caller
from hawker.api.directory import KnownApp, KnownMachine, KnownVolume, Node
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.auth.revocations import Revocations
from hawker.auth.tokens import Tokens
from hawker.gateway.gateway import Beside, Gateway
from hawker.gateway.peers import BesidePeers
from hawker.gateway.revocations import FleetRevocations
from hawker.gateway.token_handlers import TokenHandlers
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
from hawker.up.wiring import node_handlers

REGIONS = ("mad", "mad", "ams", "lhr")
DOWN_S = 6.5
"""After so long without a word a node counts as down."""


def _as_it_is(caller: Caller) -> Caller:
    return caller


@dataclass(frozen=True, slots=True)
class DeployKit:
    """What a node that deploys is made of. `moves` makes its calls as a client, `votes` those to the voters of a
    deploy; `answers` changes what it answers others. Each is called in every life."""

    worker: WorkerKit = SOUND_WORKER
    moves: Callable[[Caller], Caller] = _as_it_is
    votes: Callable[[Caller], Caller] = _as_it_is
    answers: Callable[[Handlers, SimWorker], None] = lambda handlers, worker: None


SOUND = DeployKit()


@dataclass(frozen=True, slots=True)
class DeployFleet(MoveFleet):
    """`heard` is when a node last heard of another, in virtual seconds."""

    parts: DeployKit = SOUND
    heard: dict[tuple[NodeId, NodeId], float] = field(default_factory=dict)

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
        return viewer == node or now - self.heard.get((viewer, node), -DOWN_S) < DOWN_S


class DeployWorld(MoveWorld):
    meets_fleet = True


class DeployHost(MoveHost):
    """`broker` answers clients while the host is up."""

    world_type = DeployWorld
    broker: InProcessCaller

    def __init__(self, fleet: DeployFleet, number: int, seed: int) -> None:
        super().__init__(fleet, number, seed, REGIONS[number - 1])
        self.fleet = fleet

    def meet(self, worker: SimWorker) -> Handlers:
        deps, clock, kit = worker.parts.deps, self.world.clock, self.fleet.parts
        nodes = DeployNodes(self.fleet, worker)
        deps.others.meet(nodes)
        handlers = node_handlers(worker.parts, bundler=nodes.bundler)
        kit.answers(handlers, worker)
        directory = DeployDirectory(self.fleet, self.id)
        peers = BesidePeers(self.id, handlers, clock, SimPeers(self.fleet.call_network, self.id))
        revoked = FleetRevocations(dict, Revocations(deps.store, clock))
        tokens = Tokens(Secret("hwk_root"), clock, revoked, lambda app: None)
        about_tokens = TokenHandlers(tokens, revoked, clock, lambda app: True)
        about_tokens.bind(handlers)
        market = MarketHandlers(directory, peers, preferences(), clock, limited=False)
        beside = Beside(node=self.id, handlers=handlers)
        answers = Gateway(directory, peers, beside, clock, market=market, tokens=about_tokens).handlers()
        self.broker = InProcessCaller(answers, clock, "ann")
        deps.fleet.meet(kit.moves(InProcessCaller(answers, clock, "deploy")))
        worker.tasks.start_soon(deploy_watch_of(worker.parts).serve)
        return handlers


class DeployNodes(SimOtherNodes):
    def __init__(self, fleet: DeployFleet, worker: SimWorker) -> None:
        super().__init__(fleet, worker)
        self.fleet = fleet

    def caller(self, node: NodeId) -> Caller:
        return self.fleet.parts.votes(super().caller(node))

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
