"""From an order to machines: regions in the order of preference, bids, the best, and a refusal that says why.

Stateless: all that this remembers may be lost at any moment. What must not be lost is at the workers: who filled what,
what was cancelled where, and at an app's home the claims of orders with a key.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import msgspec

from hawker.api.bodies import BidAsk, BidShown, CreateMachineRequest, OrderedApp
from hawker.api.call_metadata import CallMetadata
from hawker.api.routes import GET_MACHINE, AppParams, MachineParams
from hawker.api.routes.market import EXPORT_APP
from hawker.broker.bids import Bidding
from hawker.broker.candidates import Wanted
from hawker.broker.directory import Directory, Peers
from hawker.broker.orders import Filled, Order, Orders
from hawker.broker.preferences import Preferences
from hawker.broker.refusal import no_such_region, refusal
from hawker.broker.survey import Surveyed, Surveyor
from hawker.broker.together import Together
from hawker.clock import Clock
from hawker.config.placement import placement_of
from hawker.errors import AlreadyExists, DeadlineExceeded, HawkerError, NoRoom, NotFound, Unavailable
from hawker.ids import AppName, NodeId, new_ulid
from hawker.region import by_distance, preference

_REGIONS_ASKED = 3  # for the nearest that could
_ASKED_THERE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller wants. `key` is its Idempotency-Key, `until` monotonic time, `avoid` are nodes that will not do."""

    app: AppName
    machine: CreateMachineRequest
    behalf: str
    until: float
    key: str | None = None
    count: int = 1
    all_or_nothing: bool = False
    avoid: frozenset[NodeId] = frozenset()
    metadata: CallMetadata = field(default_factory=CallMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """`would` is where each would be filled, in a dry run; `error` is why the rest was not."""

    order_id: str = ""
    filled: Sequence[Filled] = ()
    would: Sequence[NodeId] = ()
    shown: tuple[BidShown, ...] = ()
    error: HawkerError | None = None


class Placing:
    def __init__(self, directory: Directory, peers: Peers, preferences: Preferences, clock: Clock) -> None:
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._limits = preferences.limits
        self._surveyor = Surveyor(directory, Bidding(peers), preferences, clock)
        self._orders = Orders(directory, peers, clock, self._limits.cancel_deadline_s)
        self._exports: Together[OrderedApp] = Together()

    async def one(self, wish: Wish) -> Filled:
        """Raises why nobody filled it."""
        wanted = self._wanted(wish)
        regions = self._regions(wish, wanted)
        order = await self._order(wish, wish.key or new_ulid(self._clock))
        surveys: list[Surveyed] = []
        errors: list[HawkerError] = []
        for region in regions:
            async with aclosing(self._surveyor.region(region, wanted, self._ask(wish), self._left_s(wish))) as parts:
                async for surveyed in parts:
                    surveys.append(surveyed)
                    before = await self._before(wish, surveyed)
                    if before is not None:
                        return before
                    outcome = await self._orders.place(order, surveyed.ranking, wish.until)
                    if isinstance(outcome, Filled):
                        return outcome
                    errors += outcome
                    if self._left_s(wish) <= 0:
                        raise DeadlineExceeded("the time for this call is over; the order was not filled")
        raise await self._refusal(wish, regions, surveys, errors)

    async def many(self, wish: Wish) -> Placed:
        """As many as can be. With `all_or_nothing`, what was filled is undone when the rest is not."""
        order_id = wish.key or new_ulid(self._clock)
        regions = self._regions(wish, self._wanted(wish))
        surveys = await self._surveys(wish, regions)
        for surveyed in surveys:
            before = await self._before(wish, surveyed)
            if before is not None:
                return Placed(order_id=order_id, filled=[before])
        rankings = _rankings(surveys, wish.count)
        shown = tuple(each for surveyed in surveys for each in surveyed.shown)
        planned = sum(len(surveyed.planned) for surveyed in surveys)
        if planned < wish.count and wish.key is None and (wish.all_or_nothing or not planned):
            raise await self._refusal(wish, regions, surveys, [])
        template = await self._order(wish, order_id)
        filled: dict[int, Filled] = {}
        errors: list[HawkerError] = []
        turns = anyio.CapacityLimiter(self._limits.at_once)

        async def fill(index: int, ranking: list[NodeId]) -> None:
            async with turns:
                try:
                    outcome = await self._orders.place(_unit(template, index, wish.count), ranking, wish.until)
                except HawkerError as error:
                    outcome = [error]
                if isinstance(outcome, Filled):
                    filled[index] = outcome
                else:
                    errors.extend(outcome)

        async with anyio.create_task_group() as tasks:
            for index, ranking in enumerate(rankings):
                tasks.start_soon(fill, index, ranking)
        made = [filled[index] for index in sorted(filled)]
        if len(made) == wish.count:
            return Placed(order_id=order_id, filled=made, shown=shown)
        error = await self._refusal(wish, regions, surveys, errors)
        if wish.all_or_nothing:
            await self._undo(template, filled, wish.count)
            made = []
        if not made:
            raise error
        return Placed(order_id=order_id, filled=made, shown=shown, error=error)

    async def dry_run(self, wish: Wish) -> Placed:
        """Who would fill it, or why nobody would. Changes nothing."""
        regions = self._regions(wish, self._wanted(wish))
        surveys = await self._surveys(wish, regions)
        planned = [node for surveyed in surveys for node in surveyed.planned][: wish.count]
        shown = tuple(each for surveyed in surveys for each in surveyed.shown)
        error = None
        if len(planned) < wish.count:
            error = await self._refusal(wish, regions, surveys, [])
        return Placed(would=planned, shown=shown, error=error)

    async def _undo(self, template: Order, filled: dict[int, Filled], count: int) -> None:
        """Raises `OrderUncertain` for the first that may still be there, once all were tried."""
        uncertain: list[HawkerError] = []
        for index, each in filled.items():
            try:
                await self._orders.undo(_unit(template, index, count), each)
            except HawkerError as error:
                uncertain.append(error)
        if uncertain:
            raise uncertain[0]

    async def _surveys(self, wish: Wish, regions: Sequence[str]) -> list[Surveyed]:
        """Region by region, until all could be filled."""
        wanted, found = self._wanted(wish), list[Surveyed]()
        missing = wish.count
        for region in regions:
            best: Surveyed | None = None
            ask = msgspec.structs.replace(self._ask(wish), count=missing)
            parts = self._surveyor.region(region, wanted, ask, self._left_s(wish), shows=True)
            async with aclosing(parts) as surveyed:
                async for best in surveyed:
                    if len(best.planned) >= missing:
                        break
            if best is not None:
                found.append(best)
                missing -= len(best.planned)
            if missing <= 0:
                break
        return found

    async def _before(self, wish: Wish, surveyed: Surveyed) -> Filled | None:
        """The machine that the order became once, if a node says so."""
        for node, bid in surveyed.bids.items():
            if not isinstance(bid, str) and bid.filled is not None:
                caller = self._peers.caller(NodeId(node), behalf=wish.behalf)
                params = MachineParams(app_name=wish.app, machine_id=bid.filled)
                return Filled(NodeId(node), await caller.call(GET_MACHINE, params=params))
        _check_name(wish, surveyed)
        return None

    def _ask(self, wish: Wish) -> BidAsk:
        return BidAsk(
            app=wish.app, machine=wish.machine, count=wish.count, order_id=wish.key if wish.count == 1 else None
        )

    def _wanted(self, wish: Wish) -> Wanted:
        mounts = wish.machine.config.mounts
        volume = mounts[0].volume if mounts else None
        pinned = self._directory.owner_of_volume(volume) if volume else None
        return Wanted(placement=placement_of(wish.machine.config), pinned=pinned, avoid=wish.avoid)

    def _regions(self, wish: Wish, wanted: Wanted) -> Sequence[str]:
        """Raises `NoRoom` when the fleet has none of them."""
        pinned = None if wanted.pinned is None else self._directory.node(wanted.pinned)
        if pinned is not None and not wish.machine.region:
            return (pinned.region,)
        there = {node.region for node in self._directory.nodes()}
        found = preference(wish.machine.region or None, there, self._directory.region)
        if not found:
            nearest = next(iter(by_distance(self._directory.region, there)), None)
            raise no_such_region(wish.machine.region or self._directory.region, nearest)
        return found

    async def _order(self, wish: Wish, order_id: str) -> Order:
        app = await self._app(wish)
        keyed = wish.key is not None
        return Order(
            id=order_id, keyed=keyed, app=app, machine=wish.machine, behalf=wish.behalf, metadata=wish.metadata
        )

    async def _app(self, wish: Wish) -> OrderedApp:
        """From its home; from another node that has it while the home does not answer. Raises `NotFound`."""
        error: HawkerError = NotFound("app not found")
        for node in self._directory.nodes_of_app(wish.app):
            try:
                caller = self._peers.caller(node, behalf=wish.behalf)
                ask = partial(caller.call, EXPORT_APP, params=AppParams(app_name=wish.app))
                return await self._exports.ask((node, wish.app, wish.behalf), ask)
            except HawkerError as problem:
                error = problem
        raise error

    async def _refusal(
        self, wish: Wish, regions: Sequence[str], surveys: Sequence[Surveyed], errors: Sequence[HawkerError]
    ) -> HawkerError:
        error = refusal(regions, surveys, errors, wish.machine.config, None)
        if not isinstance(error, NoRoom | Unavailable):
            return error
        nearest = await self._nearest(wish, regions)
        return refusal(regions, surveys, errors, wish.machine.config, nearest)

    async def _nearest(self, wish: Wish, but: Sequence[str]) -> str | None:
        """The nearest region that would fill the order now."""
        others = {node.region for node in self._directory.nodes()} - set(but)
        one = replace(wish, count=1, key=None)
        for region in by_distance(but[0], others)[:_REGIONS_ASKED]:
            left_s = self._left_s(wish)
            if left_s <= 0:
                return None
            parts = self._surveyor.region(region, self._wanted(one), self._ask(one), left_s)
            async with aclosing(parts) as surveyed:
                async for each in surveyed:
                    if each.ranked:
                        return region
                    break
        return None

    def _left_s(self, wish: Wish) -> float:
        return max(0.0, wish.until - self._clock.monotonic())


def _unit(order: Order, index: int, count: int) -> Order:
    """One of several has a name of its own, the same at every replay; so has its machine."""
    if count == 1:
        return order
    machine = order.machine
    if machine.name:
        machine = msgspec.structs.replace(machine, name=f"{machine.name}-{index + 1}")
    return replace(order, id=f"{order.id}.{index + 1}", machine=machine)


def _rankings(surveys: Sequence[Surveyed], count: int) -> list[list[NodeId]]:
    """For each machine, the node that is planned for it, then the others of that region. Those for which there was no
    room are tried once all the same: they may be there already, from an earlier call with the same key."""
    found: list[list[NodeId]] = []
    for surveyed in surveys:
        for node in surveyed.planned:
            found.append([node, *(other for other in surveyed.ranking if other != node)])
    any_node = [node.id for surveyed in surveys for node in surveyed.nodes if node.id not in surveyed.passed_over][:1]
    while len(found) < count and any_node:
        found.append(list(any_node))
    return found[:count]


def _check_name(wish: Wish, surveyed: Surveyed) -> None:
    """Raises `AlreadyExists`."""
    if wish.count == 1 and any(bid.name_taken for bid in surveyed.heard):
        name = wish.machine.name
        raise AlreadyExists(f"unique machine name violation, '{name}' is taken in app '{wish.app}'")
