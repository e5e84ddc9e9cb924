"""Placing one order: with the best, with the next best when that one has no room, and never with two.

Until a node has said that it did not fill the order, and will not, no other node is sent it. An order with a key of the
client's has its claim at the app's home: whichever broker a replay meets, it is sent where the first one was. One
without a key is known to this call alone; each node knows it by another name, which tells where it may be.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hawker.api.call_metadata import CallMetadata
from hawker.api.contract.machine import CreateMachineRequest, Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    FILL,
    NUMBERED,
    ORDER_TIMEOUT_S,
    CancelQuery,
    ClaimParams,
    ClaimRequest,
    OrderedApp,
    OrderParams,
    OrderRequest,
)
from hawker.api.directory import AppNodes, Directory, Peers
from hawker.clock import Clock
from hawker.errors import (
    AlreadyExists,
    DeadlineExceeded,
    Fault,
    HawkerError,
    Moved,
    NameTaken,
    OrderUncertain,
    TooLarge,
    Unavailable,
    Unprocessable,
)
from hawker.ids import AppName, NodeId
from hawker.value_object import ValueObject

_DEFINITE = (AlreadyExists, NameTaken, Unprocessable, TooLarge)
_LOST = (Fault, DeadlineExceeded)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_MOST_FOLLOWED = 8
_AT = re.compile(r"@([0-9a-f]{8})")


class Order(ValueObject, frozen=True, kw_only=True):
    """The order of a caller, all the way from the API to the worker that fills it.

    `behalf` is the caller that the gateway has authenticated, `until` monotonic time in seconds, `key` the caller's
    Idempotency-Key, `known_at` where the app is known beside what the catalog says, `avoid` are nodes that will not do;
    `metadata` takes what a worker's answer says beside its body. `id` and `exported`, the app as its home has it, are
    known once the order is about to be sent."""

    app: AppName
    machine: CreateMachineRequest
    behalf: str
    until: float
    key: str | None = None
    count: int = 1
    """The number of machines, 1 or more."""
    all_or_nothing: bool = False
    """Fewer than `count` are none: those that were made go again."""
    known_at: AppNodes = msgspec.field(default_factory=AppNodes)
    avoid: frozenset[NodeId] = frozenset()
    metadata: CallMetadata = msgspec.field(default_factory=CallMetadata)
    id: str = ""
    exported: OrderedApp | None = None

    @property
    def keyed(self) -> bool:
        return self.key is not None


class Sending(ValueObject, frozen=True):
    """One sending of an order to `node`; `name` is what the node calls the order. `number` is that of its claim."""

    node: NodeId
    name: str
    """The order's id there: by it the node knows an order that comes twice."""
    number: int = 0


class Refused(ValueObject, frozen=True):
    """The node's refusal: the order is not filled there by this attempt, now or later."""

    error: HawkerError


class Unheard(ValueObject, frozen=True):
    """Sent, and nothing more is known."""

    error: HawkerError


class Filled(ValueObject, frozen=True):
    node: NodeId
    machine: Machine


class Orders:
    def __init__(self, directory: Directory, peers: Peers, clock: Clock, cancel_deadline_s: float) -> None:
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._cancel_deadline_s = cancel_deadline_s

    async def place(self, order: Order, ranking: Sequence[NodeId]) -> Filled | list[HawkerError]:
        """The node that filled the order and its machine, or why each of these nodes did not. Raises `OrderUncertain`,
        and what the order itself is refused for."""
        errors: list[HawkerError] = []
        ahead = list(ranking)
        attempt = await self._first(order, ahead)
        while attempt is not None:
            if attempt.node in ahead:
                ahead.remove(attempt.node)
            outcome = await self._send(order, attempt)
            if isinstance(outcome, Refused) and isinstance(outcome.error, Moved) and outcome.error.node:
                attempt = replace(attempt, node=NodeId(outcome.error.node))  # it was filled, and went there
                outcome = await self._send(order, attempt)
            if isinstance(outcome, Machine):
                return Filled(attempt.node, outcome)
            if isinstance(outcome, Refused) and isinstance(outcome.error, _DEFINITE):
                raise outcome.error
            made = await self._settle(order, attempt, outcome)
            if made is not None:
                return Filled(attempt.node, made)
            errors.append(outcome.error)
            followed = len(errors) < len(ranking) + _MOST_FOLLOWED
            attempt = await self._next(order, attempt, ahead) if ahead and followed else None
        return errors

    async def undo(self, order: Order, filled: Filled) -> None:
        """Destroy what the order became there, for good. Raises `OrderUncertain` when that is not certain."""
        attempt = Sending(filled.node, await self._name_at(order, filled.node))
        await self._cancel(order, attempt, Fault("it is to be undone"), destroy=True)

    async def _name_at(self, order: Order, node: NodeId) -> str:
        return (await self._attempt(order, node, None)).name if order.keyed else f"{order.id}@{node}"

    async def _first(self, order: Order, ahead: list[NodeId]) -> Sending | None:
        """Where the order is to be sent first: where it may be already."""
        named = _AT.fullmatch(order.id[-9:]) if order.keyed else None
        before = None if named is None else NodeId(named[1])
        if before is not None and self._directory.node(before) is not None:
            return await self._attempt(order, before, None)
        return await self._attempt(order, ahead[0], None) if ahead else None

    async def _next(self, order: Order, failed: Sending, ahead: list[NodeId]) -> Sending:
        return await self._attempt(order, ahead[0], failed.number)

    async def _send(self, order: Order, attempt: Sending) -> Machine | Refused | Unheard:
        left_s = order.until - self._clock.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded("the time for this call is over: send the order again")
        try:
            caller = self._peers.caller(attempt.node, behalf=order.behalf)
            region = self._region(attempt.node) or order.machine.region
            assert order.exported is not None, "an order is sent with its app"
            body = OrderRequest(
                order_id=attempt.name,
                app=order.exported,
                machine=msgspec.structs.replace(order.machine, region=region),
            )
            return await caller.call(FILL, body=body, timeout_s=min(ORDER_TIMEOUT_S, left_s), metadata=order.metadata)
        except _LOST as error:
            return Unheard(error)
        except HawkerError as error:
            return Refused(error)

    async def _settle(self, order: Order, attempt: Sending, outcome: Refused | Unheard) -> Machine | None:
        """Make sure that the order will not be filled there any more; the machine if it was. With a key, others may be
        sending it there at this moment, so even a refusal has to be made final."""
        if isinstance(outcome, Refused) and not order.keyed:
            return None
        return await self._cancel(order, attempt, outcome.error)

    async def _cancel(
        self, order: Order, attempt: Sending, reason: HawkerError, *, destroy: bool = False
    ) -> Machine | None:
        """Tried until it is confirmed. Raises `OrderUncertain` when it is not, in time."""
        pause_s = _FIRST_PAUSE_S
        params = OrderParams(order_id=attempt.name)
        query = CancelQuery(app_name=order.app, destroy=destroy)
        deadline = self._clock.monotonic() + self._cancel_deadline_s
        while (left_s := deadline - self._clock.monotonic()) > 0:
            try:
                caller = self._peers.caller(attempt.node, behalf=order.behalf)
                return (await caller.call(CANCEL, params=params, query=query, timeout_s=left_s)).filled
            except HawkerError as error:
                reason = error
            if self._directory.node(attempt.node) is None:
                return None  # it was forgotten, which is said of hosts that are gone for good
            await self._clock.sleep(min(pause_s, max(0.0, deadline - self._clock.monotonic())))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        raise _uncertain(order, attempt, reason) from reason

    async def _attempt(self, order: Order, node: NodeId, instead_of: int | None) -> Sending:
        """Where the order belongs: at `node`, unless an order with a key is somewhere else already. Raises
        `Unavailable` when the app's home cannot be asked: nothing was sent then."""
        if not order.keyed:
            return Sending(node, f"{order.id}@{node}")
        app = order.app
        home = self._directory.home_of_app(app) or order.known_at.home
        if home is None:
            raise Unavailable(f"the home of app '{app}' is not known here yet: send the order again in a moment")
        body, params = ClaimRequest(node=node, instead_of=instead_of), ClaimParams(app_name=app, order_id=order.id)
        try:
            claim = await self._peers.caller(home, behalf=order.behalf).call(CLAIM, params=params, body=body)
        except HawkerError as error:
            raise Unavailable(
                f"node {home}, the home of app '{app}', keeps the keys of its orders and does not answer: send the"
                " order again in a moment, or without an Idempotency-Key"
            ) from error
        claimed = NodeId(claim.node)
        if claimed != node and self._directory.node(claimed) is None:
            return await self._attempt(order, node, claim.number)  # that node was forgotten
        return Sending(claimed, _numbered(order.id, claim.number), claim.number)

    def _region(self, node: NodeId) -> str | None:
        found = self._directory.node(node)
        return None if found is None else found.region


def _numbered(key: str, number: int) -> str:
    """No two keys come to one name."""
    return key if not number and NUMBERED not in key else f"{key}{NUMBERED}{number}"


def _uncertain(order: Order, attempt: Sending, reason: HawkerError) -> OrderUncertain:
    key = order.id if order.keyed else attempt.name
    return OrderUncertain(
        f"node {attempt.node} was sent the order and cannot be asked what became of it ({reason}); send the order again"
        f" with `Idempotency-Key: {key}`: it never makes a second machine",
        order=key,
    )
