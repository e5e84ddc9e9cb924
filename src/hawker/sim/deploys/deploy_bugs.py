"""The planted bugs of deploys: each is what a node of this kind gets wrong, and the simulator must find every one."""

import dataclasses
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.deploy import WRITE_REGISTER
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, UPDATE_MACHINE
from hawker.api.handlers import Handlers
from hawker.api.route import Call
from hawker.deploys.plan import RELEASE
from hawker.deploys.term_fence import GUARDED
from hawker.proof.violation import Invariant as I
from hawker.record.deploy import DEPLOYS, DeployRecord
from hawker.sim.deploys.deploy_host import DeployKit
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.faulty_store import StoreOver, TxOver
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Bucket, Durability, Tx

T = TypeVar("T")
R = TypeVar("R")


class _Calls:
    """Calls as `inner` does; its children call in another way."""

    def __init__(self, inner: Caller) -> None:
        self._inner = inner

    async def call(self, route: Any, **options: Any) -> Any:
        return await self._inner.call(route, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _NewKeys(_Calls):
    """An order that is made again is another order."""

    _orders = count()

    async def call(self, route: Any, **options: Any) -> Any:
        if route is CREATE_MACHINE:
            options["idempotency_key"] = f"{options['idempotency_key']}-{next(self._orders)}"
        return await self._inner.call(route, **options)


class _BelievedChecks(_Calls):
    """A check without a good result passes."""

    async def call(self, route: Any, **options: Any) -> Any:
        found = await self._inner.call(route, **options)
        if route is not GET_MACHINE:
            return found
        return replace(found, checks=tuple(replace(check, status="passing") for check in found.checks))


class _RendersAnew(_Calls):
    """What goes back has not the config that it had, but one that is made from what is known now."""

    _newest = 0

    async def call(self, route: Any, **options: Any) -> Any:
        if route is UPDATE_MACHINE:
            body = options["body"]
            version = int((body.config.metadata or {}).get(RELEASE, "0"))
            if version < self._newest:
                options["body"] = replace(body, config=replace(body.config, env={"OF": "now"}))
            self._newest = max(self._newest, version)
        return await self._inner.call(route, **options)


class _KeepsThePlan(_Calls):
    """The voters are told of a deploy once, when it begins."""

    async def call(self, route: Any, **options: Any) -> Any:
        if route is WRITE_REGISTER and options["body"].term > 1:
            options["body"] = replace(options["body"], state=None)
        return await self._inner.call(route, **options)


def _calls(kind: type[_Calls]) -> Callable[[Caller], Caller]:
    def made(caller: Caller) -> Caller:
        found: Caller = kind(caller)
        return found

    return made


def _no_fence(handlers: Handlers, worker: SimWorker) -> None:
    async def unread(call: Call[Any, Any, Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
        return await answer(dataclasses.replace(call, deploy_term=None))

    for route in GUARDED:
        handlers.wrap(route, unread)


class _NoBudget(StoreOver):
    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        return await self._inner.write(lambda tx: apply(_Unlimited(tx)), durability)


class _Unlimited(TxOver):
    """Deploys are written down with another pace than they were asked for."""

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        if isinstance(value, DeployRecord):
            deploy: DeployRecord = value
            limits = replace(deploy.limits, max_unavailable=100.0)
            self._tx.put(DEPLOYS, key, replace(deploy, limits=limits))
            return
        self._tx.put(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._tx.delete(bucket, key)

    def on_commit(self, call: Callable[[], None]) -> None:
        self._tx.on_commit(call)


def _plant(name: str, what: str, kit: DeployKit, *breaks: I) -> PlantedBug[DeployKit]:
    return PlantedBug(name=name, what=what, kit=kit, breaks=frozenset(breaks))


_TORN = (I.ONE_COORDINATOR, I.KEPT, I.DEPLOYED, I.FILLED_ONCE, I.BUDGET, I.GATED)
"""What may come of it when two nodes do not know of each other's deeds."""

PLANTS: tuple[PlantedBug[DeployKit], ...] = (
    _plant("no-fence", "a node obeys a coordinator whose term is over", DeployKit(answers=_no_fence), I.DEPLOYED),
    _plant(
        "plan-kept-only", "voters hear of a deploy when it begins alone", DeployKit(votes=_calls(_KeepsThePlan)), *_TORN
    ),
    _plant("new-keys", "an order that is made again is a new one", DeployKit(moves=_calls(_NewKeys)), I.FILLED_ONCE),
    _plant("checks-believed", "gates pass without a result", DeployKit(moves=_calls(_BelievedChecks)), I.GATED),
    _plant("rendered-anew", "what goes back gets a new config", DeployKit(moves=_calls(_RendersAnew)), I.DEPLOYED),
    _plant("no-budget", "all machines change at once", DeployKit(WorkerKit(store=_NoBudget)), I.BUDGET),
)
