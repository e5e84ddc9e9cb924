"""The broker's answers about placing machines: one for a client of the Machines API, many or only asked for by ours."""

import hashlib
from collections.abc import Container, Sequence
from typing import Protocol, TypeAlias

import anyio
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, Machine
from hawker.api.contract.market import (
    LIST_PLACEMENTS,
    PLACE,
    PlaceAnswer,
    Placements,
    PlacementsRequest,
    PlaceRequest,
    RegionPlacement,
)
from hawker.api.directory import AppNodes, Directory, Node, Peers
from hawker.api.failure import problem_of
from hawker.api.handlers import Handlers
from hawker.api.route import AnyRoute, Call, NoParams, NoQuery
from hawker.app import app_name
from hawker.auth.image_names import check_image_names
from hawker.clock import Clock
from hawker.config.placement import Spread, apart_from, placement_of
from hawker.errors import BadRequest, HawkerError, RateLimited, Unprocessable
from hawker.ids import AppName, NodeId
from hawker.market.orders import Order
from hawker.market.placing import Placed, Placing
from hawker.market.preferences import Limits, Preferences
from hawker.permission import Action, Attempt
from hawker.region import accepts, by_distance
from hawker.token_bucket import Allowance, TokenBuckets

AnyOrder: TypeAlias = "Call[AppParams, NoQuery, CreateMachineRequest] | Call[NoParams, NoQuery, PlaceRequest]"

MOST_AT_ONCE = 1000
_MOST_ID_BYTES = 200
_TEXT = "rate limit exceeded: this caller orders too many machines"


class Homes(Protocol):
    """The questions that the market asks of the gateway around it."""

    async def find_app(self, app: AppName, caller: str, version: str | None, *, home: bool) -> AppNodes:
        """The nodes of an app, once what the caller wrote up to `version` can be read here, or where it was written.
        `home`: its home is found, too. Raises `NotFound`, `Unavailable`."""

    def note_order(self, app: AppName, machine_id: str, version: str) -> None:
        """A machine was just made at the node that `version`, `origin:epoch:version`, names."""


class MarketHandlers:
    """`limited`: callers' orders are counted. `registries`, those of the settings, may be anywhere. `homes` is None for
    a node that is a fleet of one: it is every home."""

    def __init__(
        self,
        directory: Directory,
        peers: Peers,
        preferences: Preferences,
        clock: Clock,
        *,
        limited: bool = True,
        registries: Container[str] = (),
    ) -> None:
        self._directory = directory
        self._peers = peers
        self._registries = registries
        self._clock = clock
        self._limits = preferences.limits
        self._placing = Placing(directory, peers, preferences, clock)
        self._callers = _buckets(preferences.limits) if limited else None
        self._homes: Homes | None = None

    def bind(self, handlers: Handlers, homes: Homes | None = None) -> None:
        self._homes = homes
        handlers.on(CREATE_MACHINE, self.create)
        handlers.on(LIST_PLACEMENTS, self.placements)
        handlers.on(PLACE, self.place)

    async def create(self, call: Call[AppParams, NoQuery, CreateMachineRequest]) -> Machine:
        app = AppName(call.params.app_name)
        self._spend(call.share, 1)
        made = (await self._placing.one(await self._order(CREATE_MACHINE, call, app, call.body))).machine
        if self._homes is not None and call.metadata.version:
            self._homes.note_order(app, made.id, call.metadata.version)
        return made

    async def place(self, call: Call[NoParams, NoQuery, PlaceRequest]) -> PlaceAnswer:
        body, count = call.body, 1 if call.body.count is None else call.body.count
        app = app_name(body.app)
        call.grant.check(Attempt(Action.CREATE, app=app))
        if not 1 <= count <= MOST_AT_ONCE:
            raise Unprocessable(f"count: {count} is not between 1 and {MOST_AT_ONCE}")
        self._spend(call.share, 1 if body.dry_run else count)
        order = await self._order(PLACE, call, app, body.machine)
        order = replace(order, count=count, all_or_nothing=bool(body.all_or_nothing))
        placed = await (self._placing.dry_run(order) if body.dry_run else self._placing.many(order))
        return _answer(placed, count)

    async def placements(self, call: Call[NoParams, NoQuery, PlacementsRequest]) -> Placements:
        """The placements that the nodes offer, summed by region; the nearest first. A node that does not answer offers
        nothing."""
        body = call.body
        call.grant.check(Attempt(Action.READ, org=body.org_slug))
        nodes = [node for node in self._directory.nodes() if _open(node) and accepts(body.region, node.region)]
        counts: dict[str, int] = {}
        errors: list[HawkerError] = []
        turns = anyio.CapacityLimiter(self._limits.at_once)

        async def ask(node: Node) -> None:
            async with turns:
                try:
                    caller = self._peers.caller(node.id, behalf=call.behalf)
                    answer = await caller.call(LIST_PLACEMENTS, body=body, timeout_s=self._limits.bid_deadline_s)
                except HawkerError as error:
                    errors.append(error)
                    return
                counts[node.region] = counts.get(node.region, 0) + sum(each.count for each in answer.regions)

        async with anyio.create_task_group() as tasks:
            for node in nodes:
                tasks.start_soon(ask, node)
        wrong = [error for error in errors if isinstance(error, Unprocessable)]
        if wrong and not counts:
            raise wrong[0]
        near = by_distance(self._directory.region, [region for region, count in counts.items() if count])
        regions = tuple(_region(region, min(counts[region], body.count or counts[region])) for region in near)
        return Placements(regions=regions, Regions=regions)

    async def _find_app(self, call: AnyOrder, app: AppName) -> AppNodes:
        """An order with a key needs the app's home, which keeps the keys."""
        if self._homes is None:
            return AppNodes()
        return await self._homes.find_app(app, call.behalf, call.version, home=bool(call.idempotency_key))

    async def _order(
        self,
        route: AnyRoute,
        call: AnyOrder,
        app: AppName,
        machine: CreateMachineRequest,
    ) -> Order:
        check_image_names(call.grant, machine.config, self._registries)
        key = call.idempotency_key or None
        if key is not None and len(key.encode()) > _MOST_ID_BYTES:
            raise BadRequest(f"an Idempotency-Key has at most {_MOST_ID_BYTES} bytes")
        return Order(
            app=app,
            machine=machine,
            behalf=call.behalf,
            until=self._clock.monotonic() + min(route.timeout_s, call.deadline_s or route.timeout_s),
            key=key,
            known_at=await self._find_app(call, app),
            avoid=self._hosts_of(app, apart_from(machine.config)) | self._hosts_watched(app, machine),
            metadata=call.metadata,
        )

    def _hosts_of(self, app: AppName, machine_ids: Sequence[str]) -> frozenset[NodeId]:
        """Where machines of other apps are is not told, and not avoided."""
        owners = (self._directory.owner_of_machine(machine_id, app) for machine_id in machine_ids)
        return frozenset(owner for owner in owners if owner is not None)

    def _hosts_watched(self, app: AppName, machine: CreateMachineRequest) -> frozenset[NodeId]:
        """A spare beside the machine that it stands by for would be lost with it. Where no other host could take it, it
        is made there all the same, unless the order wants it strictly spread: clients order a spare with the first
        machine of an app, and end where it is refused. Its history says so."""
        hosts = self._hosts_of(app, machine.config.standbys or ())
        region = machine.region or self._directory.region
        others = (
            node
            for node in self._directory.nodes()
            if node.id not in hosts and accepts(region, node.region) and _takes(node)
        )
        strict = placement_of(machine.config).spread is Spread.HARD
        return hosts if strict or any(others) else frozenset()

    def _spend(self, share: str, orders: int) -> None:
        """All of them or none. Raises `RateLimited`."""
        if self._callers is None:
            return
        key, now = hashlib.blake2b(share.encode(), digest_size=16).digest(), self._clock.monotonic()
        if not self._callers.take(key, now, orders):
            raise RateLimited(_TEXT, wait_s=self._callers.wait_s(key, now, orders))


def _takes(node: Node) -> bool:
    return node.alive and not node.cordoned and not node.draining


def _buckets(limits: Limits) -> TokenBuckets | None:
    if not limits.per_caller_s:
        return None
    return TokenBuckets(Allowance(per_s=limits.per_caller_s, burst=limits.per_caller_burst))


def _open(node: Node) -> bool:
    return node.alive and not node.cordoned and not node.draining


def _region(region: str, count: int) -> RegionPlacement:
    return RegionPlacement(region=region, count=count, concurrency=count, Region=region, Count=count, Concurrency=count)


def _answer(placed: Placed, asked: int) -> PlaceAnswer:
    return PlaceAnswer(
        order_id=placed.order_id,
        asked=asked,
        filled=len(placed.filled) or len(placed.would),
        machines=tuple(each.machine for each in placed.filled),
        bids=placed.shown,
        refusal=None if placed.error is None else problem_of(placed.error),
    )
