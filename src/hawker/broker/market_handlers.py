"""The broker's answers about placing machines: one for a client of the Machines API, many or only asked for by ours."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import anyio

from hawker.api.bodies import (
    CreateMachineRequest,
    Machine,
    PlaceAnswer,
    Placements,
    PlacementsRequest,
    PlaceRequest,
    RegionPlacement,
)
from hawker.api.failure import problem_of
from hawker.api.handlers import Handlers
from hawker.api.route import AnyRoute, Call, NoParams, NoQuery
from hawker.api.routes import CREATE_MACHINE, LIST_PLACEMENTS, PLACE, AppParams
from hawker.app import app_name
from hawker.broker.directory import Directory, Node, Peers
from hawker.broker.placing import Placed, Placing, Wish
from hawker.broker.preferences import Limits, Preferences
from hawker.clock import Clock
from hawker.config.placement import apart_from
from hawker.errors import BadRequest, HawkerError, RateLimited, Unprocessable
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt
from hawker.region import accepts, by_distance
from hawker.token_bucket import Allowance, TokenBuckets

MOST_AT_ONCE = 1000
_MOST_ID_BYTES = 200
_TEXT = "rate limit exceeded: this caller orders too many machines"


class MarketHandlers:
    """`limited`: callers' orders are counted."""

    def __init__(
        self, directory: Directory, peers: Peers, preferences: Preferences, clock: Clock, *, limited: bool = True
    ) -> None:
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._limits = preferences.limits
        self._placing = Placing(directory, peers, preferences, clock)
        self._callers = _buckets(preferences.limits) if limited else None

    def bind(self, handlers: Handlers) -> None:
        """In the place of a worker's own answers."""
        handlers.on(CREATE_MACHINE, self.create)
        handlers.on(LIST_PLACEMENTS, self.placements)
        self.bind_place(handlers)

    def bind_place(self, handlers: Handlers) -> None:
        """Beside a worker that answers for itself."""
        handlers.on(PLACE, self.place)

    async def create(self, call: Call[AppParams, NoQuery, CreateMachineRequest]) -> Machine:
        self._spend(call.caller, 1)
        wish = self._wish(CREATE_MACHINE, call, AppName(call.params.app_name), call.body)
        return (await self._placing.one(wish)).machine

    async def place(self, call: Call[NoParams, NoQuery, PlaceRequest]) -> PlaceAnswer:
        body, count = call.body, 1 if call.body.count is None else call.body.count
        app = app_name(body.app)
        call.grant.check(Attempt(Action.CREATE, app=app))
        if not 1 <= count <= MOST_AT_ONCE:
            raise Unprocessable(f"count: {count} is not between 1 and {MOST_AT_ONCE}")
        self._spend(call.caller, 1 if body.dry_run else count)
        wish = self._wish(PLACE, call, app, body.machine)
        wish = replace(wish, count=count, all_or_nothing=bool(body.all_or_nothing))
        placed = await (self._placing.dry_run(wish) if body.dry_run else self._placing.many(wish))
        return _answer(placed, count)

    async def placements(self, call: Call[NoParams, NoQuery, PlacementsRequest]) -> Placements:
        """What the nodes say, summed by region; the nearest first. A node that does not answer offers nothing."""
        body = call.body
        call.grant.check(Attempt(Action.READ, org=body.org_slug))
        nodes = [node for node in self._directory.nodes() if _open(node) and accepts(body.region, node.region)]
        counts: dict[str, int] = {}
        errors: list[HawkerError] = []
        turns = anyio.CapacityLimiter(self._limits.at_once)

        async def ask(node: Node) -> None:
            async with turns:
                try:
                    caller = self._peers.caller(node.id, behalf=call.caller)
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

    def _wish(
        self,
        route: AnyRoute,
        call: "Call[AppParams, NoQuery, CreateMachineRequest] | Call[NoParams, NoQuery, PlaceRequest]",
        app: AppName,
        machine: CreateMachineRequest,
    ) -> Wish:
        key = call.idempotency_key or None
        if key is not None and len(key.encode()) > _MOST_ID_BYTES:
            raise BadRequest(f"an Idempotency-Key has at most {_MOST_ID_BYTES} bytes")
        return Wish(
            app=app,
            machine=machine,
            behalf=call.caller,
            until=self._clock.monotonic() + min(route.timeout_s, call.deadline_s or route.timeout_s),
            key=key,
            avoid=self._hosts_of((*(machine.config.standbys or ()), *apart_from(machine.config))),
            metadata=call.metadata,
        )

    def _hosts_of(self, machine_ids: Sequence[str]) -> frozenset[NodeId]:
        """A spare beside the machine that it stands by for would be lost with it; the same the other way round."""
        owners = map(self._directory.owner_of_machine, machine_ids)
        return frozenset(owner for owner in owners if owner is not None)

    def _spend(self, caller: str, orders: int) -> None:
        """Raises `RateLimited`."""
        if self._callers is None:
            return
        key, now = hashlib.blake2b(caller.encode(), digest_size=16).digest(), self._clock.monotonic()
        for _ in range(orders):
            if not self._callers.take(key, now):
                raise RateLimited(_TEXT)


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
