"""Flow `deploy`: an app's machines come to a release, one gate after the other. A gate that fails, or a person's word,
hands over to `deploy_back`, which takes back what was changed. Both run at the app's home, outlive it being killed,
and call the machines' nodes like any client.

A step may be called again at any time, also from the first one after a reboot: what has been done is in the slots.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec

from hawker.api.caller import LateCaller
from hawker.api.contract.machine_operation import CORDON_MACHINE, STOP_MACHINE, UNCORDON_MACHINE
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.deploys.deploy_table import LAST_STAGE, DeployTable, is_last
from hawker.errors import LeaseHeld, MoveUnderWay, Unavailable
from hawker.fsm.contract import Abort, Backoff, Done, EndedRun, Ending, Flow, HandOff, Outcome, Step, StepContext
from hawker.machine import GONE, State
from hawker.record.deploy import DEPLOYS, DeployWish, SlotKind, SlotRecord, SlotState, deploy_key
from hawker.store.contract import Store, Tx

if TYPE_CHECKING:
    from hawker.deploys import coordinator, moves, releases, tasks, voters
else:
    coordinator = deferred("hawker.deploys.coordinator")
    moves = deferred("hawker.deploys.moves")
    releases = deferred("hawker.deploys.releases")
    tasks = deferred("hawker.deploys.tasks")

_FORWARD, _BACK = "deploy", "deploy_back"
_LONG_S = 30 * 86_400.0
"""A deploy may be paused for weeks; each wait inside it has a limit of its own."""
_AGAIN = Backoff(attempts=1000, first_s=0.5, cap_s=30.0)
_HEARD_S = 10.0
"""The most seconds that edges of other hosts take to hear of a machine that was put into routing or taken out."""
_HEARD_HERE_S = 1.0
"""The most seconds that the edge of this host, which its daemon tells, takes to hear of it."""


class DeployInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of both flows. `why` is what a deploy that goes back was stopped by, for people."""

    app: str
    """The name of the app."""
    version: int
    """The number of the release that is to be reached."""
    why: str = ""


class LateCoordinating(Protocol):
    """The other nodes, which are there once this one answers."""

    @property
    def there(self) -> "voters.CoordinatingNodes":
        """The nodes that may coordinate. Raises `Unavailable` before they are there, and on a node that is alone."""


class DeployDeps(Protocol):
    """The parts of its node that a deploy uses."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def fleet(self) -> LateCaller: ...

    @property
    def others(self) -> "LateCoordinating": ...


def table_of(deps: DeployDeps) -> DeployTable:
    return DeployTable(deps.store, deps.clock)


def _heard_s(deps: DeployDeps) -> float:
    try:
        return _HEARD_S if len(deps.others.there.nodes()) > 1 else _HEARD_HERE_S
    except Unavailable:
        return _HEARD_HERE_S


class _Stopped(Exception):
    """A person wants the deploy to end."""


class DeploySteps:
    """The steps of both flows. `moves` and `coordinators` make what they work with."""

    def __init__(
        self,
        moves: "Callable[[], type[moves.Moves]]" = lambda: moves.Moves,
        coordinators: "Callable[[], type[coordinator.Coordinator]]" = lambda: coordinator.Coordinator,
    ) -> None:
        self._moves_type = moves
        self._coordinator_type = coordinators

    async def release_command(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Runs the release command. It and the seed command run once for each deploy, whatever is killed meanwhile."""
        return await self._guarded(context, tasks.run_commands)

    async def canary(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Makes a machine of each group, which proves itself outside of routing and goes; a group's second one stays.
        That one is in routing until all is done."""

        async def do(deploy: "moves.Moves") -> None:
            made = deploy.slots(SlotKind.CANARY)
            if made:
                await deploy.say("the canary proves itself")
                await deploy.forward([slot for slot in made if not _is_going(slot)])
                for slot in deploy.slots(SlotKind.CANARY):
                    if slot.machine and slot.cordoned:
                        await deploy.destroy(msgspec.structs.replace(slot, state=SlotState.PROVING))

        return await self._guarded(context, do)

    async def move(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Changes machines until every one that stays is of the release, or every green one is there."""

        return await self._guarded(context, lambda deploy: deploy.by_waves(gated=deploy.record.strategy != "immediate"))

    async def switch(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Switches a bluegreen deploy: all green machines are in routing, then no blue one is; those are kept at rest
        for as long as the file says."""

        async def do(deploy: "moves.Moves") -> None:
            green = [slot for slot in deploy.slots(SlotKind.CREATE) if slot.cordoned]
            if not green:
                return
            await deploy.say("the new machines come into routing")
            await deploy.each(green, UNCORDON_MACHINE)
            context.reach("switched")
            await context.clock.sleep(_heard_s(context.deps))
            await deploy.change(stage="the old machines leave routing", blue_untouched=False)
            await deploy.term.keep()  # before the first call, so that whoever goes back knows of it
            await deploy.each(deploy.slots(SlotKind.DESTROY), CORDON_MACHINE)
            await context.clock.sleep(_heard_s(context.deps))
            await _keep_blue(deploy)

        return await self._guarded(context, do)

    async def tidy(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Destroys machines that are of no group any more, and blue machines. Nothing goes back from here, so what a
        person asked for until now comes first."""
        return await self._led(context, partial(self._tidy, context))

    async def _tidy(self, context: StepContext[DeployDeps, DeployInput], term: "coordinator.Term") -> Outcome:
        deploy = self._moves(context, term)
        while (asked := await context.deps.store.write(partial(self._last_stage, context))) is DeployWish.PAUSE:
            await context.clock.sleep(moves.LOOK_S)
        if asked is not DeployWish.NOTHING:
            return await self._turned(context, term, "a person ended it", back=asked is DeployWish.ABORT)
        await term.keep()
        seconds = [slot for slot in deploy.slots(SlotKind.CANARY) if slot.machine and not slot.cordoned]
        extra = [msgspec.structs.replace(slot, state=SlotState.PROVING) for slot in seconds]
        if extra:
            with suppress(moves.SlotFailed):
                await deploy.each(extra, CORDON_MACHINE)
            await context.clock.sleep(_heard_s(context.deps))
        for slot in (*extra, *deploy.slots(SlotKind.DESTROY)):
            try:
                await deploy.destroy(slot)
            except moves.SlotFailed as failed:
                await deploy.note(slot, state=SlotState.LEFT, text=failed.text)
        return Done()

    def _last_stage(self, context: StepContext[DeployDeps, DeployInput], tx: Tx) -> DeployWish:
        """What a person asks for; else the last stage is begun."""
        given, table = context.input, table_of(context.deps)
        record = table.find(tx, given.app, given.version)
        if is_last(record):
            return DeployWish.NOTHING
        if record.asked is DeployWish.NOTHING:
            table.change(tx, given.app, given.version, stage=LAST_STAGE, no_way_back=True)
        return record.asked

    async def settle(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Marks the release as complete, so that it counts."""
        return await self._led(context, partial(self._settled, context, releases.ReleaseStatus.COMPLETE, ""))

    async def _settled(
        self, context: StepContext[DeployDeps, DeployInput], status: str, error: str, term: "coordinator.Term"
    ) -> Outcome:
        await context.deps.store.write(lambda tx: _end(tx, context.deps, context.input, status, error))
        await term.keep()
        return Done()

    async def take_back(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """Takes changes back: a machine is what it was before, or it is written down that it could not be."""
        return await self._led(context, partial(self._take_back, context), back=True)

    async def _take_back(self, context: StepContext[DeployDeps, DeployInput], term: "coordinator.Term") -> Outcome:
        deploy = self._moves(context, term)
        await deploy.say("changes are taken back")
        await tasks.remove_tasks(deploy)
        if any(slot.cordoned for slot in deploy.slots(SlotKind.CREATE)):
            await _keep_green(deploy, await _switch_back(deploy))
        await deploy.back(deploy.slots(SlotKind.UPDATE, SlotKind.CREATE, SlotKind.CANARY))
        return Done()

    async def settle_back(self, context: StepContext[DeployDeps, DeployInput]) -> Outcome:
        """The release is taken back; it failed where something could not be."""
        return await self._led(context, partial(self._settled_back, context), back=True)

    async def _settled_back(self, context: StepContext[DeployDeps, DeployInput], term: "coordinator.Term") -> Outcome:
        given, table = context.input, table_of(context.deps)
        slots = table.slots(table.store, given.app, given.version)
        left = [slot for slot in slots if slot.state is SlotState.LEFT]
        status = releases.ReleaseStatus.FAILED if left else releases.ReleaseStatus.ROLLED_BACK
        why = context.input.why
        if left:
            why += f"; not taken back: {', '.join(slot.machine or str(slot.number) for slot in left)}"
        return await self._settled(context, status, why, term)

    def _moves(self, context: StepContext[DeployDeps, DeployInput], term: "coordinator.Term") -> "moves.Moves":
        """Raises `Unavailable` while the node does not answer yet."""
        deps, given = context.deps, context.input
        table, caller = table_of(deps), deps.fleet.caller
        check = tasks.run_machine_checks
        return self._moves_type()(given.app, given.version, table, caller, context.clock, context.reach, term, check)

    async def _led(
        self,
        context: StepContext[DeployDeps, DeployInput],
        do: "Callable[[coordinator.Term], Awaitable[Outcome]]",
        *,
        back: bool = False,
    ) -> Outcome:
        """`do`, a step of the way `back` or forward, while this node coordinates the deploy; nothing where it ended
        elsewhere."""
        deps, given = context.deps, context.input
        table = table_of(deps)
        here = self._coordinator_type()(given.app, given.version, table, lambda: deps.others.there, context.clock)

        async def unless_behind(term: "coordinator.Term") -> Outcome:
            """Another coordinator may have turned back, or have been less far than this run is."""
            turned = releases.found(deps.store, given.app, given.version).status == releases.ReleaseStatus.ROLLING_BACK
            if turned and not back:
                return await self._turned(
                    context, term, table.find(deps.store, given.app, given.version).error, back=True
                )
            flow, first = (_BACK, self.take_back) if back else (_FORWARD, self.release_command)
            if term.inherited:

                def begun(tx: Tx) -> None:
                    table.change(tx, given.app, given.version, inherited=False)

                if context.finished(first.__name__):
                    return HandOff(flow, given, commit=begun)
                await deps.store.write(begun)
            return await do(term)

        found = await here.lead(unless_behind)
        return Done() if found is None else found

    async def _guarded(self, context: StepContext[DeployDeps, DeployInput], do: "tasks.Work") -> Outcome:
        return await self._led(context, partial(self._until_stopped, context, do))

    async def _until_stopped(
        self, context: StepContext[DeployDeps, DeployInput], do: "tasks.Work", term: "coordinator.Term"
    ) -> Outcome:
        """`do` until it is done, a slot fails, or a person wants it stopped. Nothing once old machines go: who begins
        anew then, after a reboot or at another node, would find a reason to go back to what is gone."""
        deploy = self._moves(context, term)
        if is_last(deploy.record):
            return Done()
        try:
            await _unless_stopped(deploy, do)
        except moves.SlotFailed as failed:
            why = f"{failed.slot.machine or failed.slot.group}: {failed.text}"
            if failed.slot.number >= 0:
                await deploy.note(failed.slot, state=SlotState.FAILED, text=failed.text)
            return await self._turned(context, term, why, back=deploy.record.limits.rollback)
        except _Stopped:
            return await self._turned(context, term, "a person ended it", back=deploy.record.asked is DeployWish.ABORT)
        return Done()

    async def _turned(
        self, context: StepContext[DeployDeps, DeployInput], term: "coordinator.Term", why: str, *, back: bool
    ) -> HandOff | Abort:
        """Back, or an end where it is."""
        given, deps = context.input, context.deps
        if not back:
            await tasks.remove_tasks(self._moves(context, term))
            await deps.store.write(lambda tx: _stay(tx, deps, given, why))
            await term.keep()
            return Abort(why)

        def commit(tx: Tx) -> None:
            releases.moved(tx, given.app, given.version, releases.ReleaseStatus.ROLLING_BACK, deps.clock.now())
            table_of(deps).change(tx, given.app, given.version, asked=DeployWish.NOTHING, error=why[:2000])

        return HandOff(_BACK, DeployInput(app=given.app, version=given.version, why=why), commit=commit)


async def _unless_stopped(deploy: "moves.Moves", do: "tasks.Work") -> None:
    failures: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            try:
                await do(deploy)
            except moves.SlotFailed as failed:
                failures.append(failed)
            tasks.cancel_scope.cancel()

        async def listen() -> None:
            while deploy.record.asked not in (DeployWish.ABORT, DeployWish.STOP):
                await deploy.clock.sleep(moves.LOOK_S)
            failures.append(_Stopped())
            tasks.cancel_scope.cancel()

        tasks.start_soon(listen)
        tasks.start_soon(work)
    if failures:
        raise failures[0]


def _is_going(canary: SlotRecord) -> bool:
    """Whether it has proven itself and its end had begun when somebody died: to order it again would find its machine
    destroyed. Before its proof a canary that changes has no machine yet."""
    return canary.state is SlotState.CHANGING and bool(canary.machine)


async def _keep_blue(deploy: "moves.Moves") -> None:
    """Old machines rest for as long as the file says, while new ones are watched: until then the way back is a start
    and a switch. Raises `SlotFailed`."""
    kept_s, clock = deploy.record.limits.keep_blue_s, deploy.clock
    if not kept_s:
        return
    if deploy.record.blue_until is None:
        await deploy.change(blue_until=clock.now() + kept_s)
    await deploy.each([slot for slot in deploy.slots(SlotKind.DESTROY) if slot.machine], STOP_MACHINE)
    left_s = max(0.0, min(kept_s, (deploy.record.blue_until or 0.0) - clock.now()))
    await deploy.say(f"the old machines are kept at rest for {left_s:.0f} s")
    await deploy.watch(left_s)


async def _switch_back(deploy: "moves.Moves") -> set[str]:
    """Old machines run and are in routing as before, each as soon as it can be. One that cannot be is written down, and
    keeps no other from it; it is left only where the deploy had begun to take old machines out of routing. Gives the
    groups that were in routing and of which no old machine is, as far as is known."""
    asleep, back = deploy.record.blue_until is not None, set[str]()
    blue = [msgspec.structs.replace(slot, kind=SlotKind.UPDATE) for slot in deploy.slots(SlotKind.DESTROY)]

    async def one(slot: SlotRecord) -> None:
        try:
            if asleep and slot.before is not None and slot.before.started:
                await deploy.restore(slot)
                await deploy.note(slot, state=SlotState.RETURNED, text="")
            if not slot.cordoned:
                await deploy.again(slot, partial(_into_routing, deploy, slot))
                back.add(slot.group)
        except (moves.SlotFailed, moves.SlotSkipped) as failed:
            gone = "destroyed" in failed.text
            left = slot.state if deploy.record.blue_untouched else SlotState.LEFT
            await deploy.note(slot, state=SlotState.RETURNED if gone else left, text=failed.text)

    await moves.side_by_side(one, [slot for slot in blue if slot.state is not SlotState.LEFT], moves.AT_ONCE)
    return {slot.group for slot in blue if not slot.cordoned} - back


async def _into_routing(deploy: "moves.Moves", slot: SlotRecord) -> None:
    """The call comes before the look, since one that took the machine out may still be under way: its host makes them
    one after the other. A lease or a move refuses both, so one that is in routing stays there. Raises `HawkerError`."""
    try:
        await deploy.change_machine(UNCORDON_MACHINE, slot)
    except (LeaseHeld, MoveUnderWay) as refused:
        machine = await deploy.get(slot)
        stopped = isinstance(refused, MoveUnderWay) and machine.state is not State.STARTED  # until it has moved
        if machine.cordoned or machine.state in GONE or stopped:
            raise


async def _keep_green(deploy: "moves.Moves", groups: Collection[str]) -> None:
    """New machines of these groups that are in routing stay, also those that fell: without them the app would serve
    nowhere, and a person who reads why can still destroy them. What was not in routing yet serves nobody, and goes; so
    does what stayed at an earlier try, whose old machines are back now."""
    for slot in deploy.slots(SlotKind.CREATE):
        if slot.group not in groups and slot.state is SlotState.LEFT:
            await deploy.note(slot, state=SlotState.DONE, text="")
        if slot.group not in groups or not slot.machine:
            continue
        there = msgspec.structs.replace(slot, kind=SlotKind.UPDATE)
        with suppress(moves.SlotFailed, moves.SlotSkipped):  # it is gone, or away: going back says which
            machine = await deploy.again(there, partial(deploy.get, slot))
            if not machine.cordoned and machine.state not in GONE:
                await deploy.note(slot, state=SlotState.LEFT, text="it serves on: no old machine of its group does")


def _end(tx: Tx, deps: DeployDeps, given: DeployInput, status: str, error: str) -> None:
    """Once: what has ended stays so."""
    now, record = deps.clock.now(), tx.get(DEPLOYS, deploy_key(given.app, given.version))
    if record is None or record.ended_at is not None:
        return
    releases.moved(tx, given.app, given.version, status, now)
    table_of(deps).change(
        tx, given.app, given.version, stage="", error=error[:2000], asked=DeployWish.NOTHING, ended_at=now
    )


def fail(tx: Tx, ended: EndedRun[DeployInput]) -> None:
    """A run that did not come to its own end: machines stay as they are."""
    if ended.ending is not Ending.DONE:
        _stay(tx, ended.deps, ended.input, ended.error or "cancelled")


def _stay(tx: Tx, deps: DeployDeps, given: DeployInput, why: str) -> None:
    """The end of a deploy that leaves machines as they are."""
    record = tx.get(DEPLOYS, deploy_key(given.app, given.version))
    if record is None:
        return
    asked = record.asked is DeployWish.STOP
    status = releases.ReleaseStatus.INTERRUPTED if asked else releases.ReleaseStatus.FAILED
    _end(tx, deps, given, status, f"{why}: machines stay as they are")


_POINTS = ("begun", "changed")


def deploy_flows(steps: DeploySteps) -> tuple[Flow[DeployInput], Flow[DeployInput]]:
    """The two flows of a deploy: forward, and back."""
    forward = Flow(
        name=_FORWARD,
        input=DeployInput,
        steps=(
            Step("release_command", steps.release_command, timeout_s=_LONG_S, backoff=_AGAIN, points=("ordered",)),
            Step("canary", steps.canary, timeout_s=_LONG_S, backoff=_AGAIN, points=_POINTS),
            Step("move", steps.move, timeout_s=_LONG_S, backoff=_AGAIN, points=_POINTS),
            Step("switch", steps.switch, timeout_s=_LONG_S, backoff=_AGAIN, points=("switched",)),
            Step("tidy", steps.tidy, timeout_s=_LONG_S, backoff=_AGAIN),
            Step("settle", steps.settle, timeout_s=_LONG_S, backoff=_AGAIN, durable=True),
        ),
        on_end=fail,
    )
    back = Flow(
        name=_BACK,
        input=DeployInput,
        steps=(
            Step("take_back", steps.take_back, timeout_s=_LONG_S, backoff=_AGAIN, points=("returning", "returned")),
            Step("settle_back", steps.settle_back, timeout_s=_LONG_S, backoff=_AGAIN, durable=True),
        ),
        on_end=fail,
    )
    return forward, back


DEPLOY_FLOWS = DEPLOY, DEPLOY_BACK = deploy_flows(DeploySteps())
