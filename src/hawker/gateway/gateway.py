"""The broker's answers to the whole route table: each call is answered here, merged from several nodes, passed to the
one node that can answer it, or is the business of the node that the broker stands beside.
"""

from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hawker.api.caller import Caller
from hawker.api.contract.app import ASSIGN_IP, GET_APP, AppParams
from hawker.api.contract.cluster import ROOT_CLUSTER_ROUTES
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    TAKE_DEPLOY,
    DeployInfo,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.image import REGISTRY_ROUTES, RESOLVE_IMAGE, LoginRequest, RegistryParams
from hawker.api.contract.machine import UPDATE_MACHINE
from hawker.api.contract.move import (
    GET_MOVE,
    LIMIT_MOVE,
    LIST_MOVES,
    MOVE_CHANGES,
    RECLAIM_MOVE,
    ListMovesQuery,
    Move,
    MoveList,
    MoveParams,
)
from hawker.api.contract.node import HEALTH, LIST_REGIONS, METRICS, Health, RegionList, region_list
from hawker.api.contract.org import OrgParams
from hawker.api.contract.private_network import LIST_PEERS, WIREGUARD_ROUTES, WireguardPeerParams
from hawker.api.contract.run import (
    ABORT_RUN,
    GET_RUN,
    MACHINE_HISTORY,
    RETRY_RUN,
    HistoryParams,
    MachineHistory,
    Run,
    RunParams,
)
from hawker.api.contract.secret import GET_SECRET, LIST_SECRETS
from hawker.api.contract.volume import MOVE_VOLUME
from hawker.api.directory import AppIndex, AppNodes, Directory, Peers
from hawker.api.handlers import Handlers
from hawker.api.route import AnyRoute, B, Call, NoParams, NoQuery, Q, Unary
from hawker.api.routes import ROUTES
from hawker.app import network_name, peer_name
from hawker.auth.image_names import check_image_names, check_registry_name
from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.deferred import deferred
from hawker.errors import Forbidden, HawkerError, NotFound, Unavailable, Unprocessable
from hawker.fair.threads import PoolProbe
from hawker.gateway.apps import AppSync, FleetApps
from hawker.gateway.claims import HostnameQuorum, NameQuorum, NetworkClaims
from hawker.gateway.fan_out import FanOut, FanOutLimits, Reach
from hawker.gateway.fleet_logs import FleetAudit, FleetLogs
from hawker.gateway.forwarding import AnyCall, Before, Forwarding
from hawker.gateway.lists import Lists, SilentRows
from hawker.gateway.owners import HomeElection, Kind, Owners
from hawker.gateway.volumes import FleetVolumes
from hawker.host.mesh.wireguard import peer_key
from hawker.ids import AppName, NodeId, new_ulid
from hawker.permission import DEPLOYING, Action, Attempt
from hawker.secret.registry_logins import registry_name
from hawker.value_object import ValueObject
from hawker.version import VERSION

if TYPE_CHECKING:
    from hawker.flytoml import reader
else:
    reader = deferred("hawker.flytoml.reader")


class FleetRuns:
    def __init__(self, passing: Forwarding, asking: FanOut) -> None:
        self._forwarding = passing
        self._fan_out = asking

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_RUN, self.get)
        handlers.on(RETRY_RUN, self.retry)
        handlers.on(ABORT_RUN, self.abort)

    async def get(self, call: Call[RunParams, NoQuery, None]) -> Run:
        _, run = await self._found(call)
        return run

    async def retry(self, call: Call[RunParams, NoQuery, None]) -> Run:
        return await self._at(RETRY_RUN, call)

    async def abort(self, call: Call[RunParams, NoQuery, None]) -> Run:
        return await self._at(ABORT_RUN, call)

    async def _at(self, route: Unary[RunParams, NoQuery, None, Run], call: Call[RunParams, NoQuery, None]) -> Run:
        node, _ = await self._found(call)
        return await self._forwarding.unary_at(node, route, call)

    async def _found(self, call: Call[RunParams, NoQuery, None]) -> tuple[NodeId, Run]:
        async def one(caller: Caller) -> Run:
            return await caller.call(GET_RUN, params=call.params)

        nodes = [node.id for node in self._forwarding.owners.directory.nodes()]
        asked = await self._fan_out.first(nodes, call.behalf, one)
        for found in asked.answers:
            return found
        if asked.silent:
            raise Unavailable(f"the run is at no node that could be asked: {asked.silent[0][1]}")
        raise NotFound(f"run {call.params.run_id:.40} not found")


# Runs of a fleet: an id does not say which node has the run, so the nodes are asked.

# Moves of a fleet: an id does not say which node a move is from either.


class FleetMoves:
    def __init__(self, passing: Forwarding, asking: FanOut) -> None:
        self._forwarding = passing
        self._fan_out = asking

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_MOVES, self.list)
        handlers.on(GET_MOVE, self.get)
        for route in MOVE_CHANGES:
            handlers.on(route, partial(self._change, route))
        handlers.on(LIMIT_MOVE, partial(self._change, LIMIT_MOVE))
        handlers.on(RECLAIM_MOVE, partial(self._change, RECLAIM_MOVE))

    async def list(self, call: Call[NoParams, ListMovesQuery, None]) -> MoveList:
        async def ask(caller: Caller) -> MoveList:
            return await caller.call(LIST_MOVES, query=call.query)

        nodes = (node.id for node in self._forwarding.owners.directory.nodes())
        asked = await self._fan_out.every(nodes, call.behalf, ask)
        asked.some("moves")
        call.metadata.missing_regions = asked.regions
        found = [move for _, answer in asked.answers for move in answer.moves]
        shown = [each for each in found if call.grant.permits(Attempt(Action.READ, app=each.app))]
        return MoveList(moves=tuple(sorted(shown, key=lambda move: move.id, reverse=True)))

    async def get(self, call: Call[MoveParams, NoQuery, None]) -> Move:
        _, move = await self._found(call)
        return move

    async def _change(self, route: Unary[Any, Any, Any, Move], call: Call[MoveParams, NoQuery, Any]) -> Move:
        node, move = await self._found(call)
        call.grant.check(Attempt(Action.WRITE, app=move.app))
        return await self._forwarding.unary_at(node, route, call)

    async def _found(self, call: Call[MoveParams, NoQuery, Any]) -> tuple[NodeId, Move]:
        async def one(caller: Caller) -> Move:
            return await caller.call(GET_MOVE, params=call.params)

        nodes = [node.id for node in self._forwarding.owners.directory.nodes()]
        asked = await self._fan_out.first(nodes, call.behalf, one)
        for node, move in asked.answers:
            if call.grant.permits(Attempt(Action.READ, app=move.app)):
                return node, move
        if asked.silent:
            raise Unavailable(f"the move is at no node that could be asked: {asked.silent[0][1]}")
        raise NotFound(f"move {call.params.move_id:.40} not found: see `hawker moves list`")


# Calls about a deploy that is under way: its app's home answers, and where that is away the node that took it over.


class FleetDeploys:
    def __init__(self, passing: Forwarding, asking: FanOut) -> None:
        self._forwarding = passing
        self._fan_out = asking

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_DEPLOY, lambda call: self._answered(GET_DEPLOY, call))
        handlers.on(PAUSE_DEPLOY, lambda call: self._answered(PAUSE_DEPLOY, call))
        handlers.on(RESUME_DEPLOY, lambda call: self._answered(RESUME_DEPLOY, call))
        handlers.on(ABORT_DEPLOY, lambda call: self._answered(ABORT_DEPLOY, call))
        handlers.on(TAKE_DEPLOY, self._take)

    async def _answered(
        self, route: Unary[DeployParams, Q, B, DeployInfo], call: Call[DeployParams, Q, B]
    ) -> DeployInfo:
        try:
            home = await self._forwarding.to_home(call)
            return await self._forwarding.unary_at(home, route, call)
        except Unavailable as away:
            node = await self._elsewhere(call)
            if node is None:
                raise
            del away
        return await self._forwarding.unary_at(node, route, call)

    async def _take(self, call: Call[DeployParams, NoQuery, None]) -> DeployInfo:
        """At the first node that keeps the deploy's state; its home may be lost."""
        params = call.params
        error: HawkerError = NotFound(
            f"no node that answers keeps deploy {params.version:.20} of app '{params.app_name:.80}'"
        )
        for node in self._forwarding.owners.directory.nodes():
            try:
                if node.alive:
                    return await self._forwarding.unary_at(node.id, TAKE_DEPLOY, call)
            except NotFound:
                continue
            except Unavailable as away:
                error = away
        raise error

    async def _elsewhere(self, call: Call[DeployParams, Q, B]) -> NodeId | None:
        """Of the living nodes that have the newest such deploy, who was told of it last."""

        async def one(caller: Caller) -> DeployInfo:
            return await caller.call(GET_DEPLOY, params=call.params, query=GetDeployQuery())

        alive = [node.id for node in self._forwarding.owners.directory.nodes() if node.alive]
        asked = await self._fan_out.every(alive, call.behalf, one)
        return _latest(asked.answers)


def _latest(found: Sequence[tuple[NodeId, DeployInfo]]) -> NodeId | None:
    return max(found, key=lambda pair: (pair[1].version, pair[1].serial), default=(None, None))[0]


_KINDS: tuple[Kind, ...] = ("machine", "volume")


class Known(Directory, AppIndex, SilentRows, Protocol):
    """All that a broker knows of the fleet; `CatalogDirectory` keeps it."""

    def forgotten(self, node: NodeId) -> bool: ...


class Answers(Protocol):
    """Handlers that bind themselves, such as those of tokens."""

    def bind(self, handlers: Handlers) -> None: ...


class Market(Protocol):
    """The market's handlers, which ask the gateway for homes and tell it where a machine was made."""

    def bind(self, handlers: Handlers, homes: "Gateway") -> None: ...


class Beside(ValueObject, frozen=True, kw_only=True):
    """The node that the broker stands beside. `handlers` are its worker's where both are one process; without them it
    is reached as all others, and for what nodes may not ask of each other by `own`. `exposition` is what the broker
    itself measured, where it is a process of its own."""

    node: NodeId
    handlers: Handlers | None = None
    exposition: Callable[[], str] | None = None
    own: Peers | None = None


class Gateway:
    """Answers all of `ROUTES`. `market` answers orders, `tokens` what is asked about tokens. `registries`, those of the
    settings, may be anywhere."""

    def __init__(
        self,
        directory: Known,
        peers: Peers,
        beside: Beside,
        clock: Clock,
        *,
        market: Market,
        tokens: Answers,
        patience: FanOutLimits | None = None,
        registries: Container[str] = (),
    ) -> None:
        self._directory = directory
        self._registries = registries
        self._probe = PoolProbe(clock)
        self._beside = beside
        self._market, self._tokens = market, tokens
        reach = Reach(directory, peers)
        self._fan_out = FanOut(reach, patience)
        self._logs = FleetLogs(directory, reach, clock)
        self._owners = Owners(directory, self._fan_out, clock)
        self._home_election = HomeElection(self._owners, self._fan_out, directory.forgotten)
        self._forwarding = Forwarding(self._owners, reach, beside.node, self._home_election)
        own = reach if beside.own is None else Reach(directory, beside.own)
        self._to_own = Forwarding(self._owners, own, beside.node, self._home_election)
        self._app_sync = AppSync(self._owners, self._fan_out)
        names = NameQuorum(directory, self._fan_out)
        self.hostnames = HostnameQuorum(beside.node, directory, directory, self._fan_out)
        self._networks = NetworkClaims(directory, directory, self._fan_out)
        self._apps = FleetApps(
            self._forwarding,
            self._fan_out,
            directory,
            names,
            self._networks,
            self._app_sync,
            beside.node,
            lambda: new_ulid(clock),
        )

    def handlers(self) -> Handlers:
        handlers = Handlers()
        answered: tuple[Answers, ...] = (
            self._tokens,
            self._apps,
            Lists(self._owners, self._fan_out, self._directory, self._directory),
            FleetVolumes(self._forwarding, self._app_sync, self._fan_out),
            FleetRuns(self._forwarding, self._fan_out),
            FleetMoves(self._forwarding, self._fan_out),
            FleetDeploys(self._forwarding, self._fan_out),
            self._logs,
            FleetAudit(self._directory, self._fan_out),
        )
        for answers in answered:
            answers.bind(handlers)
        self._market.bind(handlers, self)
        handlers.on(HEALTH, self.health)
        handlers.on(LIST_REGIONS, self.regions)
        handlers.on(MACHINE_HISTORY, self.history)
        if self._beside.exposition is not None:
            handlers.on(METRICS, self.metrics)
        for route in ROUTES:
            if handlers.missing((route,)):
                self._bind_passed(handlers, route)
        return handlers

    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        await self._probe.check()
        return Health(status="ok", version=VERSION)

    async def metrics(self, call: Call[NoParams, NoQuery, None]) -> str:
        assert self._beside.exposition is not None
        return self._beside.exposition()

    async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
        """The regions of all nodes, also of such as are down: their machines are there."""
        own = self._directory.region
        return region_list([own, *(node.region for node in self._directory.nodes())], own)

    async def history(self, call: Call[HistoryParams, NoQuery, None]) -> MachineHistory:
        """The history of a machine, from its node, else from the archive, which every node reads."""
        name = call.params.machine_id
        node = self._owners.known("machine", name)
        if node is None:
            alive = [each.id for each in self._directory.nodes() if each.alive]
            found = await self._owners.ask("machine", name, alive, call.behalf)
            node = self._beside.node if found is None else NodeId(found.node)
        told = await self._forwarding.unary_at(node, MACHINE_HISTORY, call)
        if not call.grant.permits(self._reading(told)):
            raise NotFound("machine not found")
        return told

    def _reading(self, told: MachineHistory) -> Attempt:
        """Whoever may read the app may read its machines' histories; not those of an earlier app of the same name."""
        known = self._directory.app(AppName(told.app))
        if not known or known[0].created_at > told.created_at.timestamp():
            return Attempt(Action.READ)
        return Attempt(Action.READ, app=told.app, machine=told.id)

    async def find_app(self, app: AppName, caller: str, version: str | None, *, home: bool) -> AppNodes:
        """Waits until what the caller wrote can be read here, a second at most; after that, where it was written counts
        as a node that knows the app. Raises `Unavailable` when the home is wanted and away, and no other node may
        become it; `NotFound`."""
        hint = await self._owners.hint(version)
        found = await self._forwarding.home_of(app, caller, hint) if home else None
        return AppNodes(nodes=self._owners.nodes_of_app(app, hint), home=found)

    def note_order(self, app: AppName, machine_id: str, version: str) -> None:
        """Notes where a new machine is, so that it is known here at once, whatever the catalog says yet."""
        node = NodeId(version.partition(":")[0])
        self._owners.remember("machine", machine_id, node)
        self._owners.remember("app", app, node)

    def _bind_passed(self, handlers: Handlers, route: AnyRoute) -> None:
        """By what its path names."""
        named = set(route.params.__struct_fields__)
        for kind in _KINDS:
            if f"{kind}_id" in named:
                return self._forwarding.bind_owned(handlers, route, kind, self._before(route))
        if "app_name" in named:
            return self._forwarding.bind(handlers, route, self._forwarding.to_home, self._before(route))
        if self._beside.handlers is not None:
            return self._bind_beside(handlers, route, self._beside.handlers)
        return self._to_own.bind(handlers, route, self._to_own.to_own, self._before(route))

    def _bind_beside(self, handlers: Handlers, route: AnyRoute, own: Handlers) -> None:
        """With the caller's own token; what is done before a call goes to another process is done before this, too."""
        handlers.adopt(route, own)
        before = self._before(route)
        if before is not None:
            assert isinstance(route, Unary), f"{route.name} is no call that something can be done before"
            handlers.wrap(route, partial(self._after, before))

    async def _after(self, before: Before, call: AnyCall, inner: Callable[[AnyCall], Awaitable[Any]]) -> Any:
        await before(call, self._beside.node)
        return await inner(call)

    def _before(self, route: AnyRoute) -> Before | None:
        """What a worker would ask the caller's token, which does not travel; and what an update needs to be there."""
        if route is UPDATE_MACHINE:
            return self._carry
        if route is RESOLVE_IMAGE:
            return self._may_name
        if route is CREATE_DEPLOY:
            return self._may_deploy
        if route in (LIST_SECRETS, GET_SECRET):
            return _may_show_secrets
        if route is ASSIGN_IP:
            return self._may_assign
        if route in ROOT_CLUSTER_ROUTES:
            return _is_root
        if route is MOVE_VOLUME:
            return self._bring_target
        if route in REGISTRY_ROUTES:
            return self._may_act_for_org
        if route in WIREGUARD_ROUTES:
            return self._may_enter
        return None

    async def _may_enter(self, call: AnyCall, node: NodeId) -> None:
        """A new peer's network has its number first, as a new app's. A number is claimed for good, so what the node
        would refuse is refused before that."""
        org = call.params.org_slug
        if not isinstance(call.params, WireguardPeerParams):
            return call.grant.check(Attempt(Action.READ, org=org))
        call.grant.check(Attempt(Action.CONTROL, org=org))
        if call.body is None:
            return None
        peer_name(call.params.peer)
        peer_key(call.body.pubkey)
        network = network_name(call.body.network)
        reach = self._to_own.reach
        with reach.errors(node, harmless=True):  # a node that is no gateway says so
            await reach.caller(node, call.behalf).call(LIST_PEERS, params=OrgParams(org_slug=org))
        await self._networks.settle(org, network, node, call.behalf)

    async def _carry(self, call: AnyCall, node: NodeId) -> None:
        check_image_names(call.grant, call.body.config, self._registries)
        await self._app_sync.to(AppName(call.params.app_name), node, call.behalf)

    async def _bring_target(self, call: AnyCall, node: NodeId) -> None:
        """The app that gets the volume is known where the volume is."""
        call.grant.check(Attempt(Action.CREATE, app=call.body.app))
        await self._app_sync.to(AppName(call.body.app), node, call.behalf)

    async def _may_name(self, call: AnyCall, node: NodeId) -> None:
        check_image_names(call.grant, MachineConfig(image=call.body.reference), self._registries)

    async def _may_deploy(self, call: AnyCall, node: NodeId) -> None:
        """A file that cannot be read passes: the home says what is wrong with it."""
        for action in DEPLOYING:
            call.grant.check(Attempt(action, app=call.params.app_name))
        for config in reader.configs_of(call.body.definition or {}, call.body.image):
            check_image_names(call.grant, config, self._registries)

    async def _may_act_for_org(self, call: AnyCall, node: NodeId) -> None:
        """The node asks the registry about a login, so who names it must be allowed to."""
        action = Action.WRITE if isinstance(call.params, RegistryParams) else Action.READ
        call.grant.check(Attempt(action, org=call.params.org_slug))
        if isinstance(call.body, LoginRequest) and not call.body.unchecked:
            with suppress(Unprocessable):  # of what is no name: the node says so
                check_registry_name(call.grant, registry_name(call.params.registry), self._registries)

    async def _may_assign(self, call: AnyCall, node: NodeId) -> None:
        """An address in a private network that is not the app's takes a right there, and the network's number. Its
        home says whose the app is."""
        body = call.body
        is_private = body.type == "private_v6" and (body.network or body.org_slug)
        if not (body.org_slug or is_private):
            return
        params = AppParams(app_name=call.params.app_name)
        with self._forwarding.reach.errors(node, harmless=True):  # a row of the catalog may be an earlier app's
            own = await self._forwarding.reach.caller(node, call.behalf).call(GET_APP, params=params)
        org = body.org_slug or own.organization.slug
        if org != own.organization.slug:
            call.grant.check(Attempt(Action.WRITE, org=org))
        if is_private:
            await self._networks.settle(org, network_name(body.network), node, call.behalf)


async def _may_show_secrets(call: AnyCall, node: NodeId) -> None:
    if call.query.show_secrets:
        call.grant.check(Attempt(Action.CONTROL, app=call.params.app_name))


async def _is_root(call: AnyCall, node: NodeId) -> None:
    if not call.grant.root:
        raise Forbidden("this takes the root token itself")
