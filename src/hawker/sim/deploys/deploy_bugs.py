"""The planted bugs of deploys: each is what a node of this kind gets wrong, and the simulator must find every one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
from msgspec import structs
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.deploy import CREATE_DEPLOY, GRANT_TERM, WRITE_REGISTER
from hawker.api.contract.machine import CREATE_MACHINE, GET_MACHINE, UPDATE_MACHINE
from hawker.api.handlers import Handlers
from hawker.api.route import Call
from hawker.deploys.coordinator import Coordinator, HeldTerm
from hawker.deploys.flows import DEPLOY_FLOWS, DeploySteps, deploy_flows
from hawker.deploys.moves import Moves
from hawker.deploys.plan import RELEASE
from hawker.deploys.register import RegisterHandlers
from hawker.deploys.releases import ReleaseStatus, added
from hawker.deploys.term_fence import GUARDED
from hawker.errors import HawkerError
from hawker.fsm.contract import Flow
from hawker.proof.violation import Invariant as I
from hawker.record.app import ReleaseRecord
from hawker.record.deploy import DEPLOYS, DeployRecord, SlotKind, SlotRecord, SlotState
from hawker.sim.deploys.deploy_host import DeployKit
from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.faulty_store import StoreOver, TxOver
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.store.contract import Bucket, Durability, Tx
from hawker.up.wiring import NODE_FLOWS
from hawker.worker.lifecycle.start import START

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

    async def call(self, route: Any, **options: Any) -> Any:
        if route is CREATE_MACHINE:
            options["idempotency_key"] = f"{options['idempotency_key']}-{anyio.current_time():.6f}"
        return await self._inner.call(route, **options)


class _BelievesChecks(_Calls):
    """A check that has no result yet passes."""

    async def call(self, route: Any, **options: Any) -> Any:
        found = await self._inner.call(route, **options)
        if route is not GET_MACHINE:
            return found
        passing = [replace(each, status="passing") if each.status == "warning" else each for each in found.checks]
        return replace(found, checks=tuple(passing))


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


class _OverwritesAny(_Calls):
    """An update does not say over which version it goes."""

    async def call(self, route: Any, **options: Any) -> Any:
        if route is UPDATE_MACHINE:
            options["body"] = replace(options["body"], current_version=None)
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
        return await answer(structs.replace(call, deploy_term=None))

    for route in GUARDED:
        handlers.wrap(route, unread)


class _ForgetfulVoter(RegisterHandlers):
    """After its daemon began anew, no term runs that it granted before."""

    def _runs(self, key: str) -> bool:
        return self._clock.monotonic() < self._until.get(key, self._begun)


def _forgets_terms(handlers: Handlers, worker: SimWorker) -> None:
    voter = _ForgetfulVoter(worker.parts.deps.store, worker.parts.deps.clock)
    handlers.wrap(GRANT_TERM, lambda call, answer: voter.grant(call))
    handlers.wrap(WRITE_REGISTER, lambda call, answer: voter.write(call))


class _ReadsOnly(Coordinator):
    """What was read at a majority is gone by as it is."""

    async def write_back(self, term: HeldTerm) -> None:
        return None


class _AlreadyBegun(Moves):
    """A new machine is ordered before anybody knows that it will be."""

    async def begun(self, slot: SlotRecord, state: SlotState, text: str = "") -> SlotRecord:
        if slot.kind in (SlotKind.CREATE, SlotKind.CANARY) and state is SlotState.CHANGING and not slot.machine:
            await self.term.check()
            return slot
        return await super().begun(slot, state, text)


class _OneBudget(Moves):
    """Regions share one budget."""

    def most_of_region(self, warm: Counter[str | None], region: str | None) -> int:
        return warm.total()


class _DeafToPauses(Moves):
    """What is paused goes on."""

    async def until_resumed(self) -> None:
        return None


def _numbers_first(handlers: Handlers, worker: SimWorker) -> None:
    """A deploy has its number before it is looked at."""
    deps = worker.parts.deps

    async def answered(call: Call[Any, Any, Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await answer(call)
        except HawkerError:
            now = deps.clock.now()
            used = ReleaseRecord(
                version=0,
                status=ReleaseStatus.FAILED,
                strategy="rolling",
                image="hawker/hello",
                description=call.body.label,
                definition=b"",
                user="",
                created_at=now,
                updated_at=now,
            )
            await deps.store.write(lambda tx: added(tx, call.params.app_name, used))
            raise

    handlers.wrap(CREATE_DEPLOY, answered)


def _starts_wait() -> Sequence[Flow[Any]]:
    """A machine that ended starts when no deploy is under way any more."""

    async def first(context: Any) -> Any:
        deps = context.deps
        while any(deploy.ended_at is None for _, deploy in deps.store.scan(DEPLOYS)):
            await deps.clock.sleep(1.0)
        return await START.steps[0].do(context)

    waits = replace(START, steps=(replace(START.steps[0], do=first), *START.steps[1:]))
    return [waits if flow is START else flow for flow in NODE_FLOWS]


def _steps(steps: DeploySteps) -> WorkerKit:
    def flows() -> Sequence[Flow[Any]]:
        others = [flow for flow in NODE_FLOWS if flow not in DEPLOY_FLOWS]
        return (*others, *deploy_flows(steps))

    return WorkerKit(flows=flows)


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


PLANTS: tuple[PlantedBug[DeployKit], ...] = (
    _plant(
        "no-fence",
        "a node obeys a coordinator whose term is over",
        DeployKit(answers=_no_fence),
        I.ONE_COORDINATOR,
        I.DEPLOYED,
    ),
    _plant(
        "term-forgotten",
        "a voter whose daemon began anew does not wait until the last term is over",
        DeployKit(answers=_forgets_terms),
        I.ONE_COORDINATOR,
    ),
    _plant(
        "not-written-back",
        "a coordinator goes by what it read without writing it in its own term",
        DeployKit(_steps(DeploySteps(coordinators=lambda: _ReadsOnly))),
        I.KEPT_BEFORE,
    ),
    _plant(
        "one-budget",
        "the budget is counted for all regions together",
        DeployKit(_steps(DeploySteps(moves=lambda: _OneBudget))),
        I.BUDGET,
    ),
    _plant(
        "overwrites-any",
        "an update does not say which version of the machine it changes",
        DeployKit(moves=_calls(_OverwritesAny)),
        I.ONE_SLOT,
        I.DEPLOYED,
    ),
    _plant(
        "no-intent",
        "a machine is ordered before a majority knows that it will be",
        DeployKit(_steps(DeploySteps(moves=lambda: _AlreadyBegun))),
        I.KEPT_BEFORE,
    ),
    _plant("rendered-anew", "what goes back gets a new config", DeployKit(moves=_calls(_RendersAnew)), I.DEPLOYED),
    _plant("checks-believed", "gates pass without a result", DeployKit(moves=_calls(_BelievesChecks)), I.GATED),
    _plant(
        "plan-kept-only",
        "voters hear of a deploy when it begins alone",
        DeployKit(votes=_calls(_KeepsThePlan)),
        I.KEPT_BEFORE,
    ),
    _plant("new-keys", "an order that is made again is a new one", DeployKit(moves=_calls(_NewKeys)), I.FILLED_ONCE),
    _plant(
        "number-first",
        "a deploy that is refused has used up a number",
        DeployKit(answers=_numbers_first),
        I.REFUSED,
    ),
    _plant(
        "deaf-to-pauses",
        "a deploy that is paused goes on to the next machine",
        DeployKit(_steps(DeploySteps(moves=lambda: _DeafToPauses))),
        I.PAUSED,
    ),
    _plant(
        "starts-wait",
        "a machine that ended by itself starts again when no deploy is under way",
        DeployKit(WorkerKit(flows=_starts_wait)),
        I.OWN_LIFE,
    ),
    _plant("no-budget", "all machines change at once", DeployKit(WorkerKit(store=_NoBudget)), I.BUDGET),
)
