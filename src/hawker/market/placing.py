"""From an order to machines: regions in the order of preference, bids, the best, and a refusal that says what its
caller can act on first.

Stateless: all that this remembers may be lost at any moment. What must not be lost is at the workers: who filled what,
what was cancelled where, and at an app's home the claims of orders with a key.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import partial

import anyio
import msgspec
from msgspec.structs import replace

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import GET_MACHINE, MachineParams
from hawker.api.contract.market import EXPORT_APP, BidAsk, BidShown, Decline, DeclineKind, OrderedApp
from hawker.api.directory import Directory, Peers
from hawker.api.failure import error_of
from hawker.clock import Clock
from hawker.config import MachineConfig
from hawker.config.placement import placement_of
from hawker.errors import (
    AlreadyExists,
    DeadlineExceeded,
    Fault,
    Forbidden,
    HawkerError,
    NoRoom,
    NoRoomAtVolume,
    NotFound,
    OrderCancelled,
    Unauthorized,
    Unavailable,
)
from hawker.ids import NodeId, new_ulid
from hawker.market.orders import Filled, Order, Orders
from hawker.market.preferences import Preferences
from hawker.market.singleflight import Singleflight
from hawker.market.survey import Bidding, Surveyed, Surveyor, Wanted
from hawker.node import shortfall_text
from hawker.region import by_distance, preference
from hawker.value_object import ValueObject

_PASSING = (NoRoom, Unavailable, OrderCancelled, Fault, DeadlineExceeded, Unauthorized, Forbidden)
"""The errors that say something of one node, and nothing of the order."""


def no_such_region(wanted: str, nearest: str | None) -> NoRoom:
    text = f"could not find a candidate host: no host in region '{wanted}'"
    if nearest is not None:
        text += f", the nearest is '{nearest}'"
    return NoRoom(text, scope="region", shortfall={"hosts": 1}, nearest=nearest)


def refusal(
    regions: Sequence[str],
    surveys: Sequence[Surveyed],
    errors: Sequence[HawkerError],
    config: MachineConfig,
    nearest: str | None,
) -> HawkerError:
    """`errors` are those of nodes that were sent the order."""
    telling = [error for error in errors if not isinstance(error, _PASSING)]
    if telling:
        return telling[0]
    declines = [bid.decline for survey in surveys for bid in survey.heard if bid.decline is not None]
    problems = [each for each in declines if each.problem is not None]
    if problems and len(problems) == len(declines) and not errors:
        first = min(problems, key=lambda each: (each.kind is not DeclineKind.VOLUME, each.http_status))
        assert first.problem is not None
        return error_of(first.http_status, first.problem)
    if not declines and not errors and _unreachable(surveys):
        return Unavailable(f"{_named(regions)} cannot be reached: none of its hosts answers")
    if errors and not declines and not any(isinstance(error, NoRoom) for error in errors):
        return Unavailable(f"no host in {_named(regions)} took the order, and none has it: {errors[-1]}")
    return _no_room(
        regions, surveys, declines, [error for error in errors if isinstance(error, NoRoom)], config, nearest
    )


def _unreachable(surveys: Iterable[Surveyed]) -> bool:
    """Whether there are hosts that would have been asked, and none could be."""
    silent = any(isinstance(bid, str) for survey in surveys for bid in survey.bids.values())
    down = [reason for survey in surveys for reason in survey.passed_over.values()]
    return silent or (bool(down) and all(reason == "the node cannot be reached" for reason in down))


def _no_room(
    regions: Sequence[str],
    surveys: Sequence[Surveyed],
    declines: Sequence[Decline],
    refused: Sequence[NoRoom],
    config: MachineConfig,
    nearest: str | None,
) -> HawkerError:
    mount = config.mounts[0] if config.mounts else None
    shortfalls = [each.shortfall for each in declines if each.shortfall] + [each.shortfall for each in refused]
    least = min(shortfalls, key=lambda each: (len(each), sum(each.values())), default={"hosts": 1})
    if mount is not None and mount.volume and any(each.kind is DeclineKind.NO_ROOM for each in declines):
        return NoRoomAtVolume(f"insufficient resources to create new machine with existing volume id '{mount.volume}'")
    if least == {"hosts": 1}:
        reasons = [each.reason for each in declines]
        reasons += [reason for survey in surveys for reason in survey.passed_over.values()]
        why = f" ({_told(reasons)})" if reasons else ""
        text = f"could not find a candidate host: no host in {_named(regions)} is as the order wants it{why}"
    else:
        text = (
            f"could not find a candidate host: no host in {_named(regions)} has room, short of {shortfall_text(least)}"
        )
    if nearest is not None:
        text += f"; region '{nearest}' has"
    if silent := sum(isinstance(bid, str) for survey in surveys for bid in survey.bids.values()):
        text += f"; {'one' if silent == 1 else silent} of its hosts did not answer, try again"
    return NoRoom(text, scope="region", shortfall=least, nearest=nearest)


def _told(reasons: Sequence[str]) -> str:
    """Each once, and a few of them: hosts mostly have the same."""
    each = list(dict.fromkeys(reasons))
    more = len(each) - _REASONS_TOLD
    return "; ".join(each[:_REASONS_TOLD]) + (f"; and {more} other reasons" if more > 0 else "")


def _named(regions: Sequence[str]) -> str:
    named = ", ".join(f"'{region}'" for region in regions)
    return f"region {named}" if len(regions) == 1 else f"regions {named}"


_REASONS_TOLD = 3
_REGIONS_ASKED = 3  # for the nearest that could
_ASKED_THERE = 4


class Placed(ValueObject, frozen=True, kw_only=True):
    """`would` is where each would be filled, in a dry run; `error` is why the rest was not."""

    order_id: str = ""
    """The id of the order; empty in a dry run."""
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
        self._exports: Singleflight[OrderedApp] = Singleflight()

    async def one(self, order: Order) -> Filled:
        """Places an order for one machine. Raises why nobody filled it."""
        wanted = self._wanted(order)
        regions = self._regions(order, wanted)
        order = await self._numbered(order, order.key or new_ulid(self._clock))
        surveys: list[Surveyed] = []
        errors: list[HawkerError] = []
        for region in regions:
            async with aclosing(self._surveyor.region(region, wanted, self._ask(order), self._left_s(order))) as parts:
                async for surveyed in parts:
                    surveys.append(surveyed)
                    before = await self._before(order, surveyed)
                    if before is not None:
                        return before
                    outcome = await self._orders.place(order, surveyed.ranking)
                    if isinstance(outcome, Filled):
                        return outcome
                    errors += outcome
                    if self._left_s(order) <= 0:
                        raise DeadlineExceeded("the time for this call is over; the order was not filled")
        raise await self._refusal(order, regions, surveys, errors)

    async def many(self, order: Order) -> Placed:
        """Places as many machines as can be. With `all_or_nothing`, what was filled is undone when the rest is not."""
        order_id = order.key or new_ulid(self._clock)
        regions = self._regions(order, self._wanted(order))
        surveys = await self._surveys(order, regions)
        for surveyed in surveys:
            before = await self._before(order, surveyed)
            if before is not None:
                return Placed(order_id=order_id, filled=[before])
        rankings = _rankings(surveys, order.count)
        shown = tuple(each for surveyed in surveys for each in surveyed.shown)
        planned = sum(len(surveyed.planned) for surveyed in surveys)
        if planned < order.count and order.key is None and (order.all_or_nothing or not planned):
            raise await self._refusal(order, regions, surveys, [])
        template = await self._numbered(order, order_id)
        filled: dict[int, Filled] = {}
        errors: list[HawkerError] = []
        turns = anyio.CapacityLimiter(self._limits.at_once)

        async def fill(index: int, ranking: list[NodeId]) -> None:
            async with turns:
                try:
                    outcome = await self._orders.place(_unit(template, index, order.count), ranking)
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
        if len(made) == order.count:
            return Placed(order_id=order_id, filled=made, shown=shown)
        error = await self._refusal(order, regions, surveys, errors)
        if order.all_or_nothing:
            await self._undo(template, filled, order.count)
            made = []
        if not made:
            raise error
        return Placed(order_id=order_id, filled=made, shown=shown, error=error)

    async def dry_run(self, order: Order) -> Placed:
        """The nodes that would fill the order, or why none would. Changes nothing."""
        regions = self._regions(order, self._wanted(order))
        surveys = await self._surveys(order, regions)
        planned = [node for surveyed in surveys for node in surveyed.planned][: order.count]
        shown = tuple(each for surveyed in surveys for each in surveyed.shown)
        error = None
        if len(planned) < order.count:
            error = await self._refusal(order, regions, surveys, [])
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

    async def _surveys(self, order: Order, regions: Sequence[str]) -> list[Surveyed]:
        """Region by region, until all could be filled."""
        wanted, found = self._wanted(order), list[Surveyed]()
        missing = order.count
        for region in regions:
            best: Surveyed | None = None
            ask = msgspec.structs.replace(self._ask(order), count=missing)
            parts = self._surveyor.region(region, wanted, ask, self._left_s(order), shows=True)
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

    async def _before(self, order: Order, surveyed: Surveyed) -> Filled | None:
        """The machine that the order became once, if a node says so."""
        for node, bid in surveyed.bids.items():
            if not isinstance(bid, str) and bid.filled is not None:
                caller = self._peers.caller(NodeId(node), behalf=order.behalf)
                params = MachineParams(app_name=order.app, machine_id=bid.filled)
                return Filled(NodeId(node), await caller.call(GET_MACHINE, params=params))
        _check_name(order, surveyed)
        return None

    def _ask(self, order: Order) -> BidAsk:
        return BidAsk(
            app=order.app, machine=order.machine, count=order.count, order_id=order.key if order.count == 1 else None
        )

    def _wanted(self, order: Order) -> Wanted:
        mounts = order.machine.config.mounts
        volume = mounts[0].volume if mounts else None
        pinned = self._directory.owner_of_volume(volume) if volume else None
        return Wanted(placement=placement_of(order.machine.config), pinned=pinned, avoid=order.avoid)

    def _regions(self, order: Order, wanted: Wanted) -> Sequence[str]:
        """Raises `NoRoom` when the fleet has none of them."""
        pinned = None if wanted.pinned is None else self._directory.node(wanted.pinned)
        if pinned is not None and not order.machine.region:
            return (pinned.region,)
        there = {node.region for node in self._directory.nodes()}
        found = preference(order.machine.region or None, there, self._directory.region)
        if not found:
            nearest = next(iter(by_distance(self._directory.region, there)), None)
            raise no_such_region(order.machine.region or self._directory.region, nearest)
        return found

    async def _numbered(self, order: Order, order_id: str) -> Order:
        """The order as it is sent: with a name, and with its app. Raises `NotFound`."""
        return replace(order, id=order_id, exported=await self._app(order))

    async def _app(self, order: Order) -> OrderedApp:
        """From its home; from another node that has it while the home does not answer. Raises `NotFound`."""
        error: HawkerError = NotFound("app not found")
        for node in dict.fromkeys([*self._directory.nodes_of_app(order.app), *order.known_at.nodes]):
            try:
                caller = self._peers.caller(node, behalf=order.behalf)
                ask = partial(caller.call, EXPORT_APP, params=AppParams(app_name=order.app))
                return await self._exports.ask((node, order.app, order.behalf), ask)
            except HawkerError as problem:
                error = problem
        raise error

    async def _refusal(
        self, order: Order, regions: Sequence[str], surveys: Sequence[Surveyed], errors: Sequence[HawkerError]
    ) -> HawkerError:
        error = refusal(regions, surveys, errors, order.machine.config, None)
        if not isinstance(error, NoRoom | Unavailable):
            return error
        nearest = await self._nearest(order, regions)
        return refusal(regions, surveys, errors, order.machine.config, nearest)

    async def _nearest(self, order: Order, but: Sequence[str]) -> str | None:
        """The nearest region that would fill the order now."""
        others = {node.region for node in self._directory.nodes()} - set(but)
        one = replace(order, count=1, key=None)
        for region in by_distance(but[0], others)[:_REGIONS_ASKED]:
            left_s = self._left_s(order)
            if left_s <= 0:
                return None
            parts = self._surveyor.region(region, self._wanted(one), self._ask(one), left_s)
            async with aclosing(parts) as surveyed:
                async for each in surveyed:
                    if each.ranked:
                        return region
                    break
        return None

    def _left_s(self, order: Order) -> float:
        return max(0.0, order.until - self._clock.monotonic())


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


def _check_name(order: Order, surveyed: Surveyed) -> None:
    """Raises `AlreadyExists`."""
    if order.count == 1 and any(bid.name_taken for bid in surveyed.heard):
        name = order.machine.name
        raise AlreadyExists(f"unique machine name violation, '{name}' is taken in app '{order.app}'")
