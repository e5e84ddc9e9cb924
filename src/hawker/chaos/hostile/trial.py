"""`hawker chaos hostile`: scene after scene one tenant attacks, and what the other one sees meanwhile is compared with
what it sees when it is alone.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import anyio
from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.hostile.bystander import Bystander, Sighting
from hawker.chaos.hostile.edge_scenes import SCENES as EDGE_SCENES
from hawker.chaos.hostile.fleet_scenes import SCENES as FLEET_SCENES
from hawker.chaos.hostile.front_scenes import SCENES as FRONT_SCENES
from hawker.chaos.hostile.judgement import (
    Alone,
    HostileReport,
    HostileRow,
    LatencyFigures,
    Strays,
    during,
    figures,
    wrong,
)
from hawker.chaos.hostile.lab import LabGround, fleet_ground, node_ground
from hawker.chaos.hostile.machine_scenes import SCENES as MACHINE_SCENES
from hawker.chaos.hostile.python_image import REFERENCE, write_python_image
from hawker.chaos.hostile.stage import Ground, LoopbackTrap, Scene, Stage
from hawker.chaos.hostile.stranger_scenes import SCENES as STRANGER_SCENES
from hawker.chaos.hostile.tenant_scenes import SCENES as TENANT_SCENES
from hawker.chaos.hostile.tenants import Attacker, Tenant, token_for, told
from hawker.chaos.hostile.upgrade_scenes import SCENES as UPGRADE_SCENES
from hawker.clock import Clock
from hawker.errors import CannotStart, HawkerError
from hawker.host.residue import RecordedClaims, host, unclaimed
from hawker.ids import MachineId, NodeId
from hawker.value_object import ValueObject

SCENES: tuple[Scene, ...] = (
    *STRANGER_SCENES,
    *EDGE_SCENES,
    *UPGRADE_SCENES,
    *TENANT_SCENES,
    *FRONT_SCENES,
    *MACHINE_SCENES,
    *FLEET_SCENES,
)
_ATTACKER, _BYSTANDER = "mallory", "ben"
_LEAST_S, _MOST_S = 3.0, 30.0
_SET_UP_S = 5.0  # what a scene takes beside its attack
_ALONE_S = 12.0
_QUIET_S = 2.0
_OVERTIME_S = 120.0
_ANSWERS_WITHIN_S = 60.0
_AT_REST_WITHIN_S = 30.0
_LOOK_S = 0.2
_LOUDER = 10
_PLAYS = 3


class HostilePlan(ValueObject, frozen=True):
    """`names` are the scenes to play, all of them when there are none; `short` plays one of each kind. `before_it` is a
    command that runs the node."""

    minutes: float
    """How long all scenes together are to take, each the same share."""
    names: tuple[str, ...] = ()
    short: bool = False
    before_it: tuple[str, ...] = ()

    @property
    def scenes(self) -> tuple[Scene, ...]:
        chosen = [scene for scene in SCENES if scene.short or not self.short]
        return tuple(scene for scene in chosen if not self.names or scene.name in self.names)

    @property
    def seconds(self) -> float:
        """For each scene's attack."""
        share = self.minutes * 60 / max(1, len(self.scenes)) - _SET_UP_S
        return min(_MOST_S, max(_LEAST_S, share))

    @property
    def alone_s(self) -> float:
        """How long to look before the first attack."""
        return _ALONE_S / 2 if self.short else _ALONE_S


async def run_hostile(
    plan: HostilePlan, directory: Path, clock: Clock, tell: Callable[[HostileRow], None]
) -> HostileReport:
    """Each row is told as soon as it is known."""
    began, rows, findings = clock.monotonic(), list[HostileRow](), list[str]()

    def note(row: HostileRow) -> None:
        rows.append(row)
        tell(row)

    for kind in Ground:
        if scenes := [scene for scene in plan.scenes if scene.ground is kind]:
            findings += await _played(plan, kind, scenes, directory, clock, note)
    return HostileReport(seconds=clock.monotonic() - began, rows=tuple(rows), findings=tuple(findings))


async def _played(
    plan: HostilePlan,
    kind: Ground,
    scenes: Sequence[Scene],
    directory: Path,
    clock: Clock,
    tell: Callable[[HostileRow], None],
) -> list[str]:
    """What was found that belongs to no scene."""
    findings, left = list[str](), list[str]()
    is_fleet = kind is Ground.FLEET
    opened = fleet_ground(directory, clock, left) if is_fleet else node_ground(directory, clock, left, plan.before_it)
    try:
        async with (
            _blocking(opened) as ground,
            _stage(plan, ground, clock) as stage,
            HostileTrial.on(stage, plan.alone_s) as trial,
        ):
            for scene in scenes:
                tell(await trial.play(scene))
    except* (HawkerError, RuntimeError) as errors:
        findings += [f"the trial could not go on: {error}" for error in _leaves(errors)]
    return [*findings, *(f"left on the host: {trace}" for trace in left)]


@asynccontextmanager
async def _blocking(opened: AbstractContextManager[LabGround]) -> AsyncIterator[LabGround]:
    """As it is, in threads."""
    ground = await run_sync(opened.__enter__)
    try:
        yield ground
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(opened.__exit__, None, None, None)


def _leaves(error: BaseException) -> list[BaseException]:
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else None
    return [error] if within is None else [leaf for each in within for leaf in _leaves(each)]


@asynccontextmanager
async def _stage(plan: HostilePlan, ground: LabGround, clock: Clock) -> AsyncIterator[Stage]:
    first, trap = ground.daemons[0], LoopbackTrap()
    async with AsyncExitStack() as stack:
        stack.callback(trap.close)
        root = first.token
        operators = [Tenant(each.url, root, _BYSTANDER, clock, ground.operators) for each in ground.daemons]
        attacker = Attacker(first.url, token_for(root, _ATTACKER, clock), _ATTACKER, clock, ground.attackers)
        bystander = Bystander(first.url, token_for(root, _BYSTANDER, clock), _BYSTANDER, clock, ground.bystanders)
        for tenant in (*operators, attacker, bystander):
            await stack.enter_async_context(tenant)
        await _prepare(operators)
        await bystander.settle(ground.region, ground.pages, ground.itself)
        for operator in operators[1:]:
            await told(operator, "uncordon", operators[0])
        _give_way(ground.daemons)
        watching = await stack.enter_async_context(anyio.create_task_group())
        watching.start_soon(trap.watch)
        yield Stage(ground, clock, attacker, bystander, operators, plan.seconds, trap)
        watching.cancel_scope.cancel()


def _give_way(daemons: Sequence[Daemon]) -> None:
    """Attacks come from elsewhere, and cost this host no time of its processors: ours come after the nodes'."""
    os.setpriority(os.PRIO_PROCESS, 0, _LOUDER)
    for daemon in daemons:
        for thread in os.listdir(f"/proc/{daemon.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), 0)


async def _prepare(operators: Sequence[Tenant]) -> None:
    """The two apps, the image of attacks on each node, and room on the first node only."""
    for app in (_ATTACKER, _BYSTANDER):
        reply = await operators[0].call("POST", "/v1/apps", {"name": app, "app_name": app, "org_slug": app})
        if not reply.ok:
            raise CannotStart(f"app {app} cannot be made: {reply.problem}")
    with NamedTemporaryFile(suffix=".tar") as file:
        await run_sync(write_python_image, Path(file.name))
        content = await run_sync(Path(file.name).read_bytes)
    for operator in operators:
        headers = {"Authorization": f"Bearer {operator.token}", "Content-Type": "application/octet-stream"}
        path = f"{operator.url}/hawker/v1/images/import?reference={REFERENCE}"
        async with operator.http.post(path, data=content, headers=headers) as answer:
            if answer.status != 200:
                raise CannotStart(f"the image of the attacks cannot be imported: {await answer.text()}")
    for operator in operators[1:]:
        await told(operator, "cordon", operators[0])


class HostileTrial:
    """Plays scenes on one stage. What the bystander saw alone is what each scene is compared with."""

    def __init__(self, stage: Stage, looks: list[Sighting]) -> None:
        self._stage = stage
        self._clock = stage.clock
        self._looks = looks
        self._alone = Alone()

    @classmethod
    @asynccontextmanager
    async def on(cls, stage: Stage, alone_s: float) -> AsyncIterator["HostileTrial"]:
        looks = list[Sighting]()
        async with stage.bystander.watching(looks):
            trial = cls(stage, looks)
            await trial._be_alone(alone_s)
            yield trial

    async def play(self, scene: Scene) -> HostileRow:
        """Attack, and say what was won and what was noticed. What is only slow must be so in each of some plays, since
        a busy host makes it slow too. Raises `HawkerError` when the bystander is not well before an attack."""
        began, plays = self._clock.monotonic(), 0
        slow, findings = dict[str, LatencyFigures](), list[str]()
        while plays == 0 or (slow and not findings and plays < _PLAYS):
            await self._be_alone(_QUIET_S)
            findings, seen = await self._attacked(scene)
            found = {each.operation: each for each in seen if each.slow}
            slow = {kind: each for kind, each in found.items() if plays == 0 or kind in slow}
            plays += 1
        return HostileRow(
            scene=scene.name,
            by=scene.by.value,
            shared=scene.shared,
            seconds=round(self._clock.monotonic() - began, 1),
            plays=plays,
            worst=max(seen, key=lambda each: each.times, default=None),
            findings=(*findings, *map(str, slow.values())),
        )

    async def _be_alone(self, seconds: float) -> None:
        began = self._clock.monotonic()
        await self._clock.sleep(seconds)
        seen = during(self._looks, began, self._clock.monotonic())
        if found := wrong(seen):
            raise HawkerError(f"the bystander is not well when nobody attacks it: {'; '.join(found)}")
        self._alone.learn(seen)

    async def _attacked(self, scene: Scene) -> tuple[list[str], list[LatencyFigures]]:
        """What was won or went wrong, and how long everything took."""
        began = self._clock.monotonic()
        findings = await self._won(scene)
        await self._clock.sleep(max(0.0, began + _LEAST_S - self._clock.monotonic()))
        ended = self._clock.monotonic()
        findings += await self._answered_again(ended)
        seen = during(self._looks, began, ended)
        findings += [*wrong(seen), *await self._stage.bystander.wrong(), *await self._at_rest()]
        return findings, list(figures(seen, self._alone.taken_s))

    async def _won(self, scene: Scene) -> list[str]:
        won = list[str]()
        with anyio.move_on_after(self._stage.seconds + _OVERTIME_S) as scope:
            try:
                won += await scene.attack(self._stage)
            except* (RuntimeError, HawkerError) as errors:
                won += [f"the attack could not be made: {error}" for error in _leaves(errors)]
        return [*won, "the attack did not come to its end"] if scope.cancelled_caught else won

    async def _answered_again(self, since: float) -> list[str]:
        """Each kind of operation is answered that begins after the attack; nothing is still waiting then."""
        kinds = {look.kind for look in self._looks}
        with anyio.move_on_after(_ANSWERS_WITHIN_S):
            while missing := kinds - {look.kind for look in self._looks if look.began > since}:
                await self._clock.sleep(_LOOK_S)
        return [f"{kind} has had no answer for {_ANSWERS_WITHIN_S:g} s" for kind in sorted(missing)]

    async def _at_rest(self) -> list[str]:
        """What the node itself must still do: answer its operator, destroy what the attacker has, find nothing wrong,
        and leave nothing."""
        deadline, strays = self._clock.monotonic() + _AT_REST_WITHIN_S, Strays()
        undone, left = await self._undone(), strays.left(await self._on_the_hosts())
        while (undone or left) and self._clock.monotonic() < deadline:
            await self._clock.sleep(_LOOK_S)
            undone, left = await self._undone(), strays.left(await self._on_the_hosts())
        return [*undone, *sorted(left)]

    async def _undone(self) -> list[str]:
        found = list[str]()
        for operator in self._stage.operators:
            reply = await operator.call("GET", "/internal/v1/findings")
            if not reply.ok:
                return [f"the operator was {reply.problem}"]
            found += [f"{each['kind']} {each['about']}: {each['detail']}" for each in reply.value["findings"]]
        await self._stage.attacker.clear()
        left = [machine["id"] for machine in await self._stage.attacker.machines()]
        return [*found, *(f"machine {machine_id} of the attacker was left" for machine_id in left)]

    async def _on_the_hosts(self) -> frozenset[str]:
        """What of the nodes is there and of no machine that the bystander had just before."""
        theirs = [machine["id"] for machine in await self._stage.bystander.machines()]
        looks = [await run_sync(residue_of, daemon, theirs) for daemon in self._stage.ground.daemons]
        return frozenset(stray for look in looks for stray in look)


def residue_of(daemon: Daemon, running: Sequence[MachineId]) -> list[str]:
    """What a node has on the host and is of none of these machines. Of a node on a host beside this one the mounts are
    not seen here, and a disk of a machine that runs counts as mounted."""
    traces = [trace for trace in host() if any(mark in trace.bears for mark in daemon.marks)]
    claims = RecordedClaims(NodeId(daemon.node_id), daemon.data_dir, running, running)
    mounted = (*running, *((f"{daemon.place.volumes}/",) if daemon.before_it else ()))
    strays = [each for each in unclaimed(traces, claims) if " up " not in each]
    strays = [each for each in strays if not (each.startswith("loop ") and any(name in each for name in mounted))]
    places = (daemon.place.machines, daemon.place.networks)
    folders = [each.name for place in places if place.is_dir() for each in place.iterdir()]
    return [*strays, *(f"files of {name}" for name in folders if name not in running)]
