"""One run of deploys: a plan drawn from a seed, played to its end in virtual time, and what was found in it. Releases
that are good, crash, or never pass their checks are deployed over four hosts in three regions, and taken back, while
daemons and hosts die, links are cut, and calls are lost or late.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from anyio.abc import TaskGroup

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployParams,
)
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.errors import HawkerError
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.fsm.run import State as RunState
from hawker.ids import NodeId
from hawker.proof.deploy_checks import Coordinators, DeploySight, as_before, deploys_over, more_away
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import RELEASES
from hawker.record.deploy import DEPLOYS, deploy_resource
from hawker.sim.deploys.deploy_host import REGIONS, SOUND, DeployFleet, DeployHost, DeployKit
from hawker.sim.fleet.network import CallNetwork, NetworkCut, PassingCall
from hawker.sim.harness.loop import eventually
from hawker.sim.harness.plan import Chance, RunOperation, RunOutcome, RunPlan
from hawker.sim.harness.seeded_run import SeededGame, SeededRun, drawn
from hawker.sim.node.sim_worker import APP, config_of
from hawker.worker.health import ProbeResult

HOSTS = len(REGIONS)
MACHINES_AT_FIRST = 6
RUN_S = 200.0
_LOOK_S = 0.2
_GOSSIP_S = 0.5
_REST_S = 4000.0
_ASKED_S = 12.0
_STEADY_S = 60.0
_SHARE = 0.33
_LATE_S = 60.0
_OPERATE_S = 15.0
_ACTOR = "world"
_UNREADY, _UNREADY_FAR = 9090, 9091
_WAIT = "60s"


class DeployVerb(StrEnum):
    DEPLOY = "deploy"
    ABORT = "abort"
    KEEP = "keep"
    PAUSE = "pause"
    KILL = "kill"
    POWER = "power"
    BOOT = "boot"
    CUT = "cut"
    HEAL = "heal"
    LATE = "late"
    LOSE = "lose"
    AMBUSH = "ambush"


_WEIGHTS = {
    DeployVerb.DEPLOY: 14.0,
    DeployVerb.ABORT: 2.0,
    DeployVerb.KEEP: 0.5,
    DeployVerb.PAUSE: 1.0,
    DeployVerb.KILL: 4.0,
    DeployVerb.POWER: 1.5,
    DeployVerb.CUT: 3.0,
    DeployVerb.LATE: 4.0,
    DeployVerb.LOSE: 1.5,
    DeployVerb.AMBUSH: 6.0,
}
_LATE = (
    "update_machine",
    "update_machine",
    "update_machine",
    "delete_machine",
    "write_deploy_register",
    "accept_order",
)
_AMBUSHED = (
    "update_machine",
    "write_deploy_register",
    "grant_deploy_term",
    "announce_deploy_term",
    "accept_order",
    "delete_machine",
)
_KINDS = ("good", "good", "command", "crash", "crash", "unready", "unready_far")
_GATED = ("rolling", "rolling", "canary", "bluegreen")
_STRATEGIES = ("rolling", "rolling", "rolling", "canary", "bluegreen", "immediate")


@dataclass(frozen=True, slots=True)
class DeployOperation(RunOperation[DeployVerb]):
    """`label` is a host's number, `word` what else the verb takes."""


@dataclass(frozen=True, slots=True)
class DeployRunPlan(RunPlan[DeployOperation]):
    """Four hosts, and an app with six machines of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOutcome(RunOutcome[DeployRunPlan]):
    """Deploys that were `complete`, `back` as it was before, and ended otherwise; how many were `taken` over by
    another node, and `kills` of daemons."""

    complete: int
    back: int
    otherwise: int
    taken: int
    kills: int


def draw(seed: int) -> DeployRunPlan:
    """What happens, and when: blows come in the seconds around a deploy."""
    return DeployRunPlan(seed=seed, operations=drawn(seed, RUN_S, _WEIGHTS, _drawn_at))


def _drawn_at(chance: Chance, verb: DeployVerb, at: float) -> tuple[list[DeployOperation], float]:
    host = str(chance.between(1, HOSTS) if chance.happens(0.6) else 1)
    word, amount = "", 0.0
    match verb:
        case DeployVerb.DEPLOY:
            kind = chance.one_of(_KINDS)
            word = f"{kind} {chance.one_of(_STRATEGIES if kind == 'good' else _GATED)}"
        case DeployVerb.LATE:
            word = chance.one_of(_LATE)
        case DeployVerb.CUT:
            word, amount = str(chance.between(1, HOSTS)), float(chance.between(1, 90))
        case DeployVerb.AMBUSH:
            word, amount = chance.one_of(_AMBUSHED), float(chance.between(1, 90))
        case DeployVerb.PAUSE:
            amount = float(chance.between(1, 60))
        case DeployVerb.KILL | DeployVerb.POWER | DeployVerb.LOSE:
            word, amount = chance.one_of(("0", "0.5", "1")), float(chance.between(1, 90))
        case _:
            pass
    operations = [DeployOperation(0, at, _ACTOR, verb, host, amount, word)]
    if verb in (DeployVerb.KILL, DeployVerb.POWER, DeployVerb.AMBUSH):
        operations.append(DeployOperation(0, at + amount, _ACTOR, DeployVerb.BOOT, host))
    if verb is DeployVerb.LATE:
        for late, next_verb, next_host, next_word in (
            (0.1, DeployVerb.DEPLOY, "1", "good rolling"),
            (chance.one_of((0.5, 2.0, 25.0)), DeployVerb.ABORT, "2", ""),
            (chance.one_of((0.6, 4.0, 8.0)), DeployVerb.KILL, "1", "1"),
            (chance.one_of((2.0, 40.0)), DeployVerb.BOOT, "1", ""),
        ):
            operations.append(DeployOperation(0, at + late, _ACTOR, next_verb, next_host, 0.0, next_word))
    if verb in (DeployVerb.CUT, DeployVerb.LOSE):
        operations.append(DeployOperation(0, at + amount, _ACTOR, DeployVerb.HEAL, host))
    return operations, at + chance.one_of((0.2, 1.0, 3.0, 8.0, 20.0, 40.0))


class DeploySimulation(SeededRun[DeployRunPlan, DeployOutcome]):
    def __init__(self, plan: DeployRunPlan, kit: DeployKit) -> None:
        super().__init__(plan)
        self._fleet = DeployFleet(CallNetwork(self._clock), kit.worker, parts=kit)
        self._hosts: dict[NodeId, DeployHost] = {}
        for number in range(1, HOSTS + 1):
            host = DeployHost(self._fleet, number, plan.seed * 100 + number)
            self._hosts[host.id] = self._fleet.hosts[host.id] = host
            host.world.prober.answers[_UNREADY] = ProbeResult(False, "not ready")
            if REGIONS[number - 1] != REGIONS[0]:
                host.world.prober.answers[_UNREADY_FAR] = ProbeResult(False, "not ready here")
        self._fleet.call_network.hears = self._hear
        self._fleet.call_network.late_s = _LATE_S
        self._coordinators = Coordinators()
        self._ambushes: list[tuple[NodeId, str]] = []
        self._accepted: dict[int, str] = {}
        self._aborted: set[int] = set()
        self._calls = 0
        self._unsteady = dict.fromkeys(self._hosts, 0.0)

    async def _run(self, tasks: TaskGroup) -> None:
        await self.begin(tasks)
        await self._do_all(self._do)
        await self._rest()
        self._judge()
        for host in self._hosts.values():
            await host.kill()

    async def begin(self, tasks: TaskGroup) -> None:
        """All hosts are up, and the app has its machines."""
        self._tasks = tasks
        await tasks.start(self._fleet.call_network.serve)
        for host in self._hosts.values():
            await host.begin(tasks)
        tasks.start_soon(self._gossip)
        await self._clock.sleep(1.0)
        await self._stock()
        tasks.start_soon(self._watch)
        tasks.start_soon(self._operate)

    async def _gossip(self) -> None:
        while True:
            self._fleet.gossip()
            await self._clock.sleep(_GOSSIP_S)

    async def _stock(self) -> None:
        """Machines of the app's one group, over all hosts; its home is the first."""
        broker, here = self._home.broker, AppParams(app_name=APP)
        await broker.call(CREATE_APP, body=CreateAppRequest(name=APP))
        for number in range(MACHINES_AT_FIRST):
            config = config_of(
                metadata={**PLATFORM, GROUP: "app"},
                restart={"policy": "always"},
                env={"OF": "before"},
                guest={"cpu_kind": "shared", "cpus": 1, "memory_mb": 256},
            )
            body = CreateMachineRequest(config=config, region=REGIONS[number % HOSTS])
            await broker.call(CREATE_MACHINE, params=here, body=body)
        await self._clock.sleep(5.0)

    @property
    def _home(self) -> DeployHost:
        return next(iter(self._hosts.values()))

    async def _watch(self) -> None:
        """Everything is looked at."""
        while True:
            await self._clock.sleep(_LOOK_S)
            now = self._clock.monotonic()
            for host in self._hosts.values():
                if host.worker is None:
                    self._unsteady[host.id] = now
            sight = self._sight()
            self._note(more_away(sight, _SHARE))
            self._note(self._coordinators.look(sight))
            self._note(as_before(sight, self._home.id))

    async def _operate(self) -> None:
        """An operator takes up runs at which daemon after daemon has died."""
        while True:
            await self._clock.sleep(_OPERATE_S)
            for host in self._hosts.values():
                runs = [] if host.worker is None else host.worker.parts.runner.list(active=True)
                for run in runs:
                    if run.state is RunState.STUCK and host.worker is not None:
                        self._say(f"retry {run.flow} at {host.id}")
                        await host.worker.parts.runner.retry(run.run_id)

    def _sight(self) -> DeploySight:
        return DeploySight(
            app=APP,
            readers={host.id: host.world.store for host in self._hosts.values()},
            running=frozenset(each for host in self._hosts.values() for each in host.world.host.running()),
            steady=frozenset(
                host.id
                for host in self._hosts.values()
                if host.worker is not None and self._clock.monotonic() - self._unsteady[host.id] > _STEADY_S
            ),
        )

    async def _do(self, operation: DeployOperation) -> None:
        self._say(f"{operation.verb} {operation.label} {operation.word}".rstrip())
        host = self._hosts[NodeId(f"{int(operation.label):08x}")]
        network, word = self._fleet.call_network, operation.word
        match operation.verb:
            case DeployVerb.DEPLOY | DeployVerb.ABORT | DeployVerb.KEEP | DeployVerb.PAUSE:
                self._tasks.start_soon(self._ask, operation, host)
            case DeployVerb.KILL | DeployVerb.POWER:
                await host.kill(kept=float(word), power=operation.verb is DeployVerb.POWER)
            case DeployVerb.BOOT:
                await host.begin(self._tasks)
            case DeployVerb.CUT:
                other = frozenset(
                    {NodeId(f"{int(word):08x}")} if operation.amount > 30 else set(self._hosts) - {host.id}
                )
                network.cuts.append(NetworkCut(frozenset({host.id}), other - {host.id}, both=operation.amount > 15))
            case DeployVerb.LATE:
                network.late.append(word)
            case DeployVerb.LOSE:
                network.lost = network.mute = 0.1
            case DeployVerb.AMBUSH:
                self._ambushes.append((host.id, word))
            case DeployVerb.HEAL:
                self._heal()

    def _hear(self, passing: PassingCall) -> None:
        """A host that is waylaid loses its daemon at the next call of that name that it makes or answers, and all that
        it had not synced."""
        for host_id, route in list(self._ambushes):
            if route == passing.route and host_id in (passing.sender, passing.receiver):
                self._ambushes.remove((host_id, route))
                self._say(f"ambush of {host_id} {'before' if passing.before else 'after'} {route}")
                self._fleet.hosts[host_id].fall(kept=0.0)

    def _heal(self) -> None:
        self._fleet.call_network.cuts.clear()
        self._fleet.call_network.lost = self._fleet.call_network.mute = 0.0

    async def _ask(self, operation: DeployOperation, host: DeployHost) -> None:
        """At any broker; a refusal is an answer."""
        if host.worker is None:
            return
        broker, verb, latest = host.broker, operation.verb, DeployParams(app_name=APP, version="latest")
        try:
            match verb:
                case DeployVerb.DEPLOY:
                    here = AppParams(app_name=APP)
                    made = await broker.call(CREATE_DEPLOY, params=here, body=_order(operation))
                    self._accepted[made.version] = operation.word
                case DeployVerb.PAUSE:
                    made = await broker.call(PAUSE_DEPLOY, params=latest)
                    self._tasks.start_soon(self._resume, operation.amount, host, made.version)
                case _:
                    keep = AbortDeployRequest(keep=verb is DeployVerb.KEEP)
                    made = await broker.call(ABORT_DEPLOY, params=latest, body=keep)
                    self._aborted.add(made.version)
            self._calls += 1
            self._say(f"{verb}: {made.version} is {made.status}")
        except HawkerError as error:
            self._say(f"{verb}: {error}")

    async def _resume(self, after_s: float, host: DeployHost, version: int) -> None:
        """Until it is done, since nobody else would."""
        await self._clock.sleep(after_s)
        params = DeployParams(app_name=APP, version=str(version))
        while any(record.ended_at is None for record in self._records(version)):
            if host.worker is not None and any(record.asked == "pause" for record in self._records(version)):
                try:
                    await host.broker.call(RESUME_DEPLOY, params=params)
                except HawkerError as error:
                    self._say(f"resume: {error}")
            await self._clock.sleep(5.0)

    def _records(self, version: int) -> "list[Any]":
        key = f"{APP}/{version:010d}"
        return [found for host in self._hosts.values() if (found := host.world.store.get(DEPLOYS, key)) is not None]

    async def _rest(self) -> None:
        """All is healed and up, and everything has come to its end."""
        self._heal()
        self._ambushes.clear()
        self._fleet.call_network.late.clear()
        await self._clock.sleep(_ASKED_S)
        for host in self._hosts.values():
            await host.begin(self._tasks)
        try:
            await eventually(self._clock, lambda: bool(self._found) or not any(self._left()), _REST_S, 1.0)
        except TimeoutError:
            self._note(Violation(Invariant.DEPLOY_ENDS, about, what) for about, what in self._left())
        await self._clock.sleep(60.0)

    def _left(self) -> Iterator[tuple[str, str]]:
        for host in self._hosts.values():
            if host.worker is None:
                yield host.id, "is down"
                continue
            runs = host.worker.parts.runner.list(active=True, resource=deploy_resource(APP))
            yield from ((run.run_id, f"{run.flow} at {run.step}") for run in runs)
            found = host.world.store.scan(DEPLOYS)
            yield from ((key, f"has not ended at {host.id}") for key, each in found if each.ended_at is None)

    def _judge(self) -> None:
        if not self._found:
            bad = {version for version, word in self._accepted.items() if word.split()[0] in ("crash", "unready")}
            self._note(deploys_over(self._sight(), self._home.id, set(self._accepted), self._aborted, bad))

    def _outcome(self, told: dict[str, Any]) -> DeployOutcome:
        statuses = [each.status for _, each in self._home.world.store.scan(RELEASES)]
        deploys = [each for _, each in self._home.world.store.scan(DEPLOYS)]
        complete, back = statuses.count("complete"), statuses.count("rolled_back")
        return DeployOutcome(
            **told,
            operations=self._calls,
            complete=complete,
            back=back,
            otherwise=len(statuses) - complete - back,
            taken=sum(each.coordinator not in ("", self._home.id) for each in deploys),
            kills=sum(host.kills for host in self._hosts.values()),
        )


GAME: SeededGame[DeployKit, DeployRunPlan, DeployOutcome] = SeededGame(sound=SOUND, run=DeploySimulation)
play, shrink = GAME.play, GAME.shrink


def _order(operation: DeployOperation) -> CreateDeployRequest:
    kind, strategy = operation.word.split()
    words = {"definition": _definition(kind, operation.number), "image": "hawker/hello", "strategy": strategy}
    return msgspec.convert(words, CreateDeployRequest)


def _definition(kind: str, number: int) -> dict[str, Any]:
    """What a fly.toml of that kind says."""
    port = {"unready": _UNREADY, "unready_far": _UNREADY_FAR}.get(kind, 8080)
    check = {"type": "tcp", "port": port, "interval": "2s", "timeout": "1s", "grace_period": "1s"}
    found: dict[str, Any] = {
        "env": {"OF": str(number)},
        "checks": {"up": check},
        "restart": [{"policy": "always"}],
        "deploy": {"wait_timeout": _WAIT},
        "hawker": {"deploy": {"smoke": "4s", "smoke_rest": "1s", "bake": "3s"}},
    }
    if kind == "command":
        found["deploy"] |= {"release_command": "exit 0"}
    if kind == "crash":
        found["experimental"] = {"cmd": ["exit", "3"]}
    return found
