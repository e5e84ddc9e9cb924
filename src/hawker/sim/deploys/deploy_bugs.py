"""The planted bugs of deploys: each is what a node of this kind gets wrong, and the simulator must find every one."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.machine import UPDATE_MACHINE
from hawker.api.handlers import Handlers
from hawker.api.route import Call
from hawker.deploys.plan import RELEASE
from hawker.deploys.term_fence import GUARDED
from hawker.proof.violation import Invariant as I
from hawker.sim.deploys.deploy_host import DeployKit
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.sim_worker import SimWorker

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


def _plant(name: str, what: str, kit: DeployKit, *breaks: I) -> PlantedBug[DeployKit]:
    return PlantedBug(name=name, what=what, kit=kit, breaks=frozenset(breaks))


PLANTS: tuple[PlantedBug[DeployKit], ...] = (
    _plant("no-fence", "a node obeys a coordinator whose term is over", DeployKit(answers=_no_fence), I.DEPLOYED),
    _plant("rendered-anew", "what goes back gets a new config", DeployKit(moves=_calls(_RendersAnew)), I.DEPLOYED),
)
