"""Apps of a fleet. Each has a home, the node where it was made, which keeps its secrets, policies and addresses; other
nodes know it as soon as they have a machine of it: the broker brings it to them, and carries what it cannot read.
A name is one app's: see `claims.py`.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.caller import Caller
from hawker.api.contract.app import (
    CREATE_APP,
    DELETE_APP,
    GET_APP,
    LIST_APPS,
    App,
    AppList,
    AppParams,
    CreateAppQuery,
    CreateAppRequest,
    DeleteAppQuery,
    ListAppsQuery,
)
from hawker.api.contract.market import EXPORT_APP, OrderedApp
from hawker.api.contract.network_policy import (
    DELETE_POLICY,
    PUT_POLICY,
    NetworkPolicy,
    NetworkPolicyRequest,
    PolicyParams,
)
from hawker.api.contract.owner import CARRY_APP
from hawker.api.contract.release import UPDATE_RELEASE, Release, ReleaseParams, UpdateReleaseRequest
from hawker.api.directory import AppIndex
from hawker.api.handlers import Handlers
from hawker.api.paging import after_of, cursor_after
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import DEFAULT_ORG, app_name, network_name
from hawker.errors import Fault, HawkerError, NameTaken, NotFound, Unavailable, Unprocessable, WrongState
from hawker.gateway.claims import TAKEN, NameQuorum, NetworkClaims
from hawker.gateway.fan_out import Asked, FanOut
from hawker.gateway.forwarding import Forwarding
from hawker.gateway.lists import PagePart, merged
from hawker.gateway.owners import Owners
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt


class AppSync:
    def __init__(self, owners: Owners, asking: FanOut) -> None:
        self._owners = owners
        self._fan_out = asking

    async def to(self, app: AppName, node: NodeId, behalf: str) -> None:
        """Brings what the app's home has of the app to `node`. Where its home cannot be asked, a node that knows the
        app goes on with what it has. Raises `NotFound`, and `Unavailable` when the node cannot be told, or does not
        know the app and nobody who does can be asked."""
        if self._owners.home_of_app(app) == node:
            return
        knows = node in self._owners.nodes_of_app(app)
        packed = await self._packed(app, behalf, only_home=knows)
        if packed is None:
            return
        params = AppParams(app_name=app)
        reach = self._fan_out.reach
        with reach.errors(node, harmless=True):
            await reach.caller(node, behalf).call(CARRY_APP, params=params, body=packed)
        self._owners.remember("app", app, node)

    async def everywhere(self, app: AppName, behalf: str) -> Asked[object]:
        """Brings what the app's home has to all nodes that know the app beside its home."""
        home = self._owners.home_of_app(app)
        nodes = [node for node in self._owners.nodes_of_app(app) if node != home]
        packed = await self._packed(app, behalf, only_home=False) if nodes else None

        async def one(caller: Caller) -> object:
            assert packed is not None
            return await caller.call(CARRY_APP, params=AppParams(app_name=app), body=packed)

        return await self._fan_out.every(nodes if packed else (), behalf, one)

    async def _packed(self, app: AppName, behalf: str, *, only_home: bool) -> OrderedApp | None:
        """As its home has it, else as anybody has it who knows it."""
        home = self._owners.home_of_app(app)
        nodes = self._owners.nodes_of_app(app)

        async def one(caller: Caller) -> OrderedApp:
            return await caller.call(EXPORT_APP, params=AppParams(app_name=app))

        asked = await self._fan_out.first((home,) if home is not None else (), behalf, one)
        if not asked.answers and home is not None and not asked.silent:
            raise NotFound("app not found")
        if not asked.answers and only_home:
            return None
        for _, packed in asked.answers:
            return packed
        others = await self._fan_out.first([node for node in nodes if node != home], behalf, one)
        for _, packed in others.answers:
            return packed
        for _, why in (*asked.silent, *others.silent):
            raise Unavailable(f"no node that has app '{app}' can be reached: {why}")
        raise NotFound("app not found")


MOST_LISTED = APPS_IN_PAGE


class FleetApps:
    """`new_claim` gives an id that nobody else has."""

    def __init__(
        self,
        passing: Forwarding,
        asking: FanOut,
        index: AppIndex,
        names: NameQuorum,
        networks: NetworkClaims,
        app_sync: AppSync,
        own: NodeId,
        new_claim: Callable[[], str],
    ) -> None:
        self._forwarding = passing
        self._owners: Owners = passing.owners
        self._fan_out = asking
        self._index = index
        self._names = names
        self._networks = networks
        self._app_sync = app_sync
        self._own = own
        self._new_claim = new_claim

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_APPS, self.list)
        handlers.on(CREATE_APP, self.create)
        handlers.on(GET_APP, self.get)
        handlers.on(DELETE_APP, self.delete)
        handlers.on(PUT_POLICY, self.put_policy)
        handlers.on(DELETE_POLICY, self.delete_policy)
        handlers.on(UPDATE_RELEASE, self.move_release)

    async def list(self, call: Call[NoParams, ListAppsQuery, None]) -> AppList:
        """The apps that the caller's token may see, with what all nodes have of each."""
        query, grant = call.query, call.grant
        after_of(query.cursor)
        if query.app_role:
            return AppList(total_apps=0, apps=())
        known = self._index.apps()
        wanted = {each.name: each.org for each in known if query.org_slug in (None, "", each.org)}
        seen = {name for name, org in wanted.items() if grant.permits(Attempt(Action.READ, org=org, app=name))}

        async def one(caller: Caller) -> PagePart[App]:
            page = await caller.call(LIST_APPS, query=msgspec.structs.replace(query, limit=MOST_LISTED))
            items = [app for app in page.apps if app.name in seen or grant.permits(_reading(app))]
            return PagePart(items=items, upto=after_of(page.next_cursor) or None)

        nodes = dict.fromkeys([self._own, *(each.node for each in known)])
        asked = await self._fan_out.every(nodes, call.behalf, one)
        asked.some("apps")
        call.metadata.missing_regions = asked.regions
        parts = [part for _, part in asked.answers]
        seen.update(AppName(app.name) for part in parts for app in part.items)
        whole = merged(parts, lambda app: app.name, query.limit, better=_together)
        cursor = None if whole.upto is None else cursor_after(whole.upto)
        return AppList(total_apps=len(seen), apps=whole.items, next_cursor=cursor)

    async def get(self, call: Call[AppParams, NoQuery, None]) -> App:
        asked = await self._shown(call.params, call.behalf, call.version)
        call.metadata.missing_regions = asked.regions
        first, *others = [app for _, app in asked.answers]
        for other in others:
            first = _together(first, other)
        return first

    async def create(self, call: Call[NoParams, CreateAppQuery, CreateAppRequest]) -> App:
        """Creates an app at the node that this broker stands beside, else at the first that is alive; but where another
        broker had begun to with the same key, there."""
        body = call.body
        text = body.name or body.app_name
        if not text:
            raise Unprocessable("name is required")
        name, key = app_name(text), body.idempotency_key or call.idempotency_key
        call.grant.check(Attempt(Action.CREATE, org=body.org_slug or DEFAULT_ORG, app=name))
        if self._index.app(name):
            return await self._there(call, name, key)
        claim = key or self._new_claim()
        kept = await self._names.keep(name, claim, self._home(), call.behalf, shared=key is not None)
        home = kept.home
        try:
            org, network = body.org_slug or DEFAULT_ORG, network_name(body.network)
            await self._networks.settle(org, network, home, call.behalf)
            made = await self._forwarding.unary_at(home, CREATE_APP, call)
        except Fault:
            raise  # it may be made: the name stays kept until that is known
        except HawkerError:
            await self._names.release(kept, call.behalf)
            raise
        self._owners.remember("app", name, home)
        return made

    async def delete(self, call: Call[AppParams, DeleteAppQuery, None]) -> None:
        """Deletes an app everywhere, its home last, so that what is cut short can be made again. Nothing is done while
        a node that knows the app cannot be asked."""
        name, force = AppName(call.params.app_name), call.query.forced
        call = replace(call, query=DeleteAppQuery(force=force))  # as older nodes need to be told
        asked = await self._shown(call.params, call.behalf, call.version)
        if asked.silent:
            raise Unavailable(f"app '{name}' was not deleted: {asked.silent[0][1]}")
        machines = sum(app.machine_count for _, app in asked.answers)
        volumes = sum(app.volume_count for _, app in asked.answers)
        if not force and machines:
            raise WrongState(f"app '{name}' still has {machines} machines: destroy them first")
        if not force and volumes:
            raise WrongState(f"app '{name}' still has {volumes} volumes: destroy them first")
        home = self._owners.home_of_app(name)
        for node, _ in sorted(asked.answers, key=lambda pair: pair[0] == home):
            try:
                await self._forwarding.unary_at(node, DELETE_APP, call)
            except NotFound:
                continue
        await self._names.give_up(name, call.behalf)

    async def put_policy(self, call: Call[AppParams, NoQuery, NetworkPolicyRequest]) -> NetworkPolicy:
        """Keeps a policy at the app's home, then has it in force at every node that has machines of the app."""
        home = await self._forwarding.to_home(call)
        made = await self._forwarding.unary_at(home, PUT_POLICY, call)
        await self._in_force(call.params.app_name, call.behalf)
        return made

    async def delete_policy(self, call: Call[PolicyParams, NoQuery, None]) -> None:
        home = await self._forwarding.to_home(call)
        await self._forwarding.unary_at(home, DELETE_POLICY, call)
        await self._in_force(call.params.app_name, call.behalf)

    async def move_release(self, call: Call[ReleaseParams, NoQuery, UpdateReleaseRequest]) -> Release:
        """Keeps the release's status at the app's home, then tells it to the nodes that may be its next home. What
        cannot be told now goes along with the app's next order."""
        home = await self._forwarding.to_home(call)
        moved = await self._forwarding.unary_at(home, UPDATE_RELEASE, call)
        with suppress(HawkerError):
            await self._app_sync.everywhere(AppName(call.params.app_name), call.behalf)
        return moved

    async def _in_force(self, app: str, behalf: str) -> None:
        try:
            told = await self._app_sync.everywhere(AppName(app), behalf)
        except HawkerError as error:
            raise Fault(f"what you asked for is kept and not in force at other nodes yet: {error}") from error
        for _, why in told.silent:
            raise Fault(f"what you asked for is kept and not in force everywhere yet, set it again: {why}")

    async def _there(
        self, call: Call[NoParams, CreateAppQuery, CreateAppRequest], name: AppName, key: str | None
    ) -> App:
        """The app that is there, if this call made it; its home knows by the key. Raises `NameTaken`."""
        home = self._owners.home_of_app(name)
        if key is None or home is None:
            raise NameTaken(TAKEN)
        # The catalog may speak of an app that is gone: then the home makes it anew.
        org, network = call.body.org_slug or DEFAULT_ORG, network_name(call.body.network)
        await self._networks.settle(org, network, home, call.behalf)
        return await self._forwarding.unary_at(home, CREATE_APP, call)

    def _home(self) -> NodeId:
        reach = self._fan_out.reach
        if reach.alive(self._own):
            return self._own
        alive = [node.id for node in self._owners.directory.nodes() if node.alive]
        if not alive:
            raise Unavailable("no node is alive that could be an app's home")
        return min(alive)

    async def _shown(self, params: AppParams, behalf: str, version: str | None) -> Asked[App]:
        """What each node that knows the app has of it. Raises `NotFound`, `Unavailable`."""
        app = AppName(params.app_name)
        nodes = self._owners.nodes_of_app(app, await self._owners.hint(version))

        async def one(caller: Caller) -> App:
            return await caller.call(GET_APP, params=params)

        asked = await self._fan_out.every(nodes, behalf, one)
        asked.some(f"app '{app}'")
        if not asked.answers:
            raise NotFound("app not found")
        return asked


def _reading(app: App) -> Attempt:
    return Attempt(Action.READ, org=app.organization.slug, app=app.name)


def _together(one: App, other: App) -> App:
    """The same app as two nodes see it."""
    machines = one.machine_count + other.machine_count
    return msgspec.structs.replace(
        one,
        machine_count=machines,
        volume_count=one.volume_count + other.volume_count,
        status="deployed" if machines else one.status,
    )
