"""One run of deploys, played to its end in virtual time, and what was found in it. Releases that are good, crash, or
never pass their checks are deployed over four hosts in three regions, and taken back, while daemons and hosts die,
links are cut, and calls are lost or late.
"""

from collections.abc import Collection, Iterator
from typing import Any

from anyio.abc import TaskGroup
from msgspec import structs

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    DeployParams,
)
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.api.contract.machine_operation import CREATE_LEASE, LeaseRequest
from hawker.errors import BadRequest, Conflict, HawkerError, NoRoom, Unprocessable
from hawker.flytoml.machines import GROUP, PLATFORM
from hawker.fsm.run import State as RunState
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.proof.deploy_checks import (
    Coordinators,
    DeploySight,
    OwnExits,
    Serving,
    as_before,
    deploys_over,
    proven,
    refused,
)
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import RELEASES
from hawker.record.deploy import (
    DEPLOY_SLOTS,
    DEPLOYS,
    DeployRecord,
    SlotState,
    deploy_resource,
)
from hawker.record.machine import MACHINES, MachineRecord
from hawker.sim.deploys.deploy_host import REGIONS, SOUND, DeployFleet, DeployHost, DeployKit
from hawker.sim.deploys.deploy_plan import (
    EVERY_HOST,
    HOSTS,
    OWN_PORT,
    UNREADY,
    UNREADY_FAR,
    DeployBlow,
    DeployOperation,
    DeployOutcome,
    DeployRunPlan,
    DeployVerb,
    hopeless_order,
    order_of,
)
from hawker.sim.deploys.deploy_witness import DeployWitness
from hawker.sim.fleet.network import CallNetwork, NetworkCut, PassingCall
from hawker.sim.harness.loop import eventually
from hawker.sim.harness.seeded_run import SeededGame, SeededRun
from hawker.sim.node.sim_worker import APP, config_of, params
from hawker.worker.health import ProbeResult

MACHINES_AT_FIRST = 8
_LOOK_S = 0.2
_GOSSIP_S = 0.5
_REST_S = 4000.0
_ASKED_S = 12.0
_STEADY_S = 60.0
_RESTARTS_S = 45.0
_SHARE = 0.33
_LATE_S = 60.0
_OPERATE_S = 15.0
_BEGINS_S = 1.5
"""What a machine's program takes until it serves."""
_SPREAD = ("mad", "mad", "mad", "mad", "ams", "ams", "lhr", "lhr")
"""Regions of the machines at first."""


class _Ambush:
    """`left` times somebody passes before who comes by is struck; of calls, those of `host`."""

    def __init__(self, host: NodeId, place: str, left: int, blow: DeployBlow) -> None:
        self.host, self.place, self.left, self.blow = host, place, left, blow


class DeploySimulation(SeededRun[DeployRunPlan, DeployOutcome]):
    def __init__(self, plan: DeployRunPlan, kit: DeployKit) -> None:
        super().__init__(plan)
        self._fleet = DeployFleet(CallNetwork(self._clock), kit.worker, parts=kit)
        self._hosts: dict[NodeId, DeployHost] = {}
        for number in range(1, HOSTS + 1):
            host = DeployHost(self._fleet, number, plan.seed * 100 + number)
            self._hosts[host.id] = self._fleet.hosts[host.id] = host
            host.world.prober.answers[UNREADY] = ProbeResult(False, "not ready")
            if REGIONS[number - 1] != REGIONS[0]:
                host.world.prober.answers[UNREADY_FAR] = ProbeResult(False, "not ready here")
        self._fleet.call_network.hears = self._hear
        self._fleet.call_network.late_s = _LATE_S
        self._coordinators = Coordinators()
        self._serving = Serving(_SHARE)
        self._ledger = DeployWitness(self._fleet, self._hosts, self._note).ledger
        self._fleet.watches.passes = self._pass
        self._ambushes: list[_Ambush] = []
        self._fallen: set[int] = set()
        self._newest = 0
        self._up_since: dict[str, float] = {}
        self._watching = False
        self._accepted: dict[int, str] = {}
        self._aborted: set[int] = set()
        self._refused: set[str] = set()
        self._goes_on = 0  # how often a deploy was told to
        self._own_exits = OwnExits(_RESTARTS_S)
        self._excused: set[MachineId] = set()  # ended by themselves, and do not serve again yet
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
        for region in _SPREAD:
            config = config_of(
                metadata={**PLATFORM, GROUP: "app"},
                restart={"policy": "always"},
                env={"OF": "before"},
                guest={"cpu_kind": "shared", "cpus": 1, "memory_mb": 256},
            )
            body = CreateMachineRequest(config=config, region=region)
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
            self._excused -= sight.serving
            self._note(self._serving.look(_as_if_serving(sight, self._excused)))
            self._note(proven(sight, self._is_hopeless))
            self._watching = True
            self._note(self._coordinators.look(sight))
            self._note(as_before(sight, self._home.id))
            self._note(refused(sight, self._home.id, self._refused))
            self._note(self._own_exits.look(sight, now))

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
        now = self._clock.monotonic()
        return DeploySight(
            app=APP,
            readers={host.id: host.world.store for host in self._hosts.values()},
            running=frozenset(each for host in self._hosts.values() for each in host.world.host.running()),
            steady=frozenset(
                host.id
                for host in self._hosts.values()
                if host.worker is not None and now - self._unsteady[host.id] > _STEADY_S
            ),
            serving=frozenset(each.id for host in self._hosts.values() for each in self._serving_at(host)),
        )

    def _serving_at(self, host: DeployHost) -> Iterator[MachineRecord]:
        """Machines in routing whose program has begun and answers, but for what befell it later."""
        running, now = host.world.host.running(), self._clock.monotonic()
        for _, machine in host.world.store.scan(MACHINES):
            if machine.state is State.STARTED and machine.id in running and not machine.cordoned and machine.running:
                since = self._up_since.setdefault(machine.running.instance_id, now if self._watching else 0.0)
                ports = [check.port for check in (machine.config.checks or {}).values()]
                answers = [host.world.prober.answers.get(port or 0) for port in ports if port not in self._fallen]
                if now - since >= _BEGINS_S and all(answer is None or answer.passing for answer in answers):
                    yield machine

    def _is_hopeless(self, version: int, region: str | None) -> bool:
        kind = self._accepted.get(version, "good").split()[0]
        return kind in ("crash", "unready") or (kind in ("unready_far", "late_far") and region != REGIONS[0])

    # What befalls them.

    async def _do(self, operation: DeployOperation) -> None:
        self._say(f"{operation.verb} {operation.label} {operation.word}".rstrip())
        hosts = [self._hosts[each] for each in self._hosts if operation.label in (EVERY_HOST, str(int(each)))]
        host, network, word = hosts[0], self._fleet.call_network, operation.word
        match operation.verb:
            case DeployVerb.DEPLOY | DeployVerb.REFUSE:
                self._tasks.start_soon(self._order, operation, host)
            case DeployVerb.ABORT | DeployVerb.KEEP | DeployVerb.PAUSE:
                self._tasks.start_soon(self._ask, operation, host)
            case DeployVerb.EXIT:
                self._exit(host)
            case DeployVerb.KILL | DeployVerb.POWER:
                await host.kill(kept=float(word), power=operation.verb is DeployVerb.POWER)
            case DeployVerb.BOOT:
                for each in hosts:
                    await each.begin(self._tasks)
            case DeployVerb.CUT:
                other = {NodeId(f"{int(word):08x}")} if operation.amount > 30 else set(self._hosts)
                self._cut(host.id, frozenset(other), both=operation.amount > 15)
            case DeployVerb.LATE:
                network.late.append(word)
            case DeployVerb.LOSE:
                network.lost = network.mute = 0.1
            case DeployVerb.AMBUSH:
                place, count, blow = word.split("|")
                self._ambushes.append(_Ambush(host.id, place, int(count), DeployBlow(blow)))
            case DeployVerb.FALL:
                self._fall()
            case DeployVerb.LEASE:
                self._tasks.start_soon(self._lease, host, int(operation.amount))
            case DeployVerb.DOUBT:
                self._fleet.doubted[host.id] = self._clock.monotonic() + operation.amount
            case DeployVerb.HEAL:
                self._heal()

    def _hear(self, passing: PassingCall) -> None:
        """A host that is waylaid is struck at a call of that name that it makes or answers."""
        for ambush in list(self._ambushes):
            if ambush.place == passing.route and ambush.host in (passing.sender, passing.receiver):
                falls = ambush.blow in (DeployBlow.KILL, DeployBlow.POWER)
                self._come_by(ambush, ambush.host if falls else passing.sender or ambush.host)

    def _pass(self, node: NodeId, place: str) -> None:
        """Whoever passes a place where somebody waits is struck."""
        for ambush in list(self._ambushes):
            if ambush.place == place and self._hosts[node].worker is not None:
                self._come_by(ambush, node)

    def _come_by(self, ambush: "_Ambush", node: NodeId) -> None:
        ambush.left -= 1
        if ambush.left > 0:
            return
        self._ambushes.remove(ambush)
        self._say(f"{ambush.blow} of {node} at {ambush.place}")
        host, other = self._hosts[node], self._hosts[max(set(self._hosts) - {node})]
        match ambush.blow:
            case DeployBlow.KILL | DeployBlow.POWER:
                host.fall(kept=0.0, power=ambush.blow is DeployBlow.POWER)
            case DeployBlow.PART:
                self._cut(node, frozenset(self._hosts), both=True)
            case DeployBlow.DEPOSE:
                self._tasks.start_soon(self._depose, node)
            case DeployBlow.TURN | DeployBlow.HOLD:
                verb = DeployVerb.ABORT if ambush.blow is DeployBlow.TURN else DeployVerb.PAUSE
                self._tasks.start_soon(self._ask, DeployOperation(0, 0.0, "world", verb, amount=20.0), other)
            case DeployBlow.FAIL:
                self._fall()

    async def _depose(self, node: NodeId) -> None:
        """The other voters do not hear of it any more, and have forgotten what only a daemon remembers."""
        found = self._hosts[node].world.store.scan(DEPLOYS, f"{APP}/", limit=1, reverse=True)
        voters = {voter for _, record in found for voter in record.voters} - {node}
        self._cut(node, frozenset(voters), both=True)
        for voter in sorted(voters):
            await self._hosts[voter].kill(kept=1.0)
            await self._hosts[voter].begin(self._tasks)

    def _cut(self, node: NodeId, others: frozenset[NodeId], *, both: bool) -> None:
        self._fleet.call_network.cuts.append(NetworkCut(frozenset({node}), others - {node}, both=both))

    def _fall(self) -> None:
        """The release that came last does not pass its checks from now on."""
        port = OWN_PORT + self._newest
        self._fallen.add(port)
        for host in self._hosts.values():
            host.world.prober.answers[port] = ProbeResult(False, "it has fallen ill")

    async def _lease(self, host: DeployHost, ttl_s: int) -> None:
        body = LeaseRequest(ttl=ttl_s, description="a client")
        for _, machine in list(host.world.store.scan(MACHINES)):
            try:
                await self._home.broker.call(CREATE_LEASE, params=params(machine.id), body=body)
            except HawkerError as error:
                self._say(f"lease: {error}")

    def _heal(self) -> None:
        self._fleet.call_network.cuts.clear()
        self._fleet.call_network.lost = self._fleet.call_network.mute = 0.0

    async def _order(self, operation: DeployOperation, host: DeployHost) -> None:
        """A deploy, at a broker. What is refused for good leaves nothing behind."""
        if host.worker is None:
            return
        label = f"order {operation.number}"
        if operation.verb is DeployVerb.DEPLOY:
            self._newest = operation.number
        body = order_of(operation) if operation.verb is DeployVerb.DEPLOY else hopeless_order(operation)
        try:
            made = await host.broker.call(
                CREATE_DEPLOY, params=AppParams(app_name=APP), body=structs.replace(body, label=label)
            )
        except (BadRequest, Conflict, NoRoom, Unprocessable) as error:
            self._refused.add(label)
            self._say(f"{label} is refused: {error}")
        except HawkerError as error:
            self._say(f"{label}: {error}")
        else:
            self._accepted[made.version] = operation.word
            self._calls += 1
            self._say(f"{label}: {made.version} is {made.status}")
            if operation.verb is DeployVerb.REFUSE:
                self._note([Violation(Invariant.REFUSED, label, f"{operation.word}: it was accepted")])

    async def _ask(self, operation: DeployOperation, host: DeployHost) -> None:
        """At any broker; a refusal is an answer."""
        if host.worker is None:
            return
        broker, verb, latest = host.broker, operation.verb, DeployParams(app_name=APP, version="latest")
        try:
            if verb is DeployVerb.PAUSE:
                newest = max((deploy.version for deploy in self._deploys()), default=0)
                self._tasks.start_soon(self._resume, operation.amount, newest)
                before = self._goes_on
                made = await broker.call(PAUSE_DEPLOY, params=latest)
                if before == self._goes_on:
                    self._ledger.paused(made.version, [slot.number for slot in made.slots if slot.state == "waiting"])
            else:
                self._let_go_on()
                keep = AbortDeployRequest(keep=verb is DeployVerb.KEEP)
                made = await broker.call(ABORT_DEPLOY, params=latest, body=keep)
                self._aborted.add(made.version)
            self._calls += 1
            self._say(f"{verb}: {made.version} is {made.status}")
        except HawkerError as error:
            self._say(f"{verb}: {error}")

    def _let_go_on(self) -> None:
        """Whatever is paused may go on from now on."""
        self._goes_on += 1
        self._ledger.go_on()

    def _exit(self, host: DeployHost) -> None:
        """The program of one of its machines, that deploys do not change now."""
        running, deploys = host.world.host.running(), {deploy.version: deploy for deploy in self._deploys()}
        changing = {
            slot.machine
            for each in self._hosts.values()
            for key, slot in each.world.store.scan(DEPLOY_SLOTS)
            if slot.state not in (SlotState.WAITING, SlotState.DONE)
            and deploys[int(key.split("/")[1])].ended_at is None
        }
        for _, machine in host.world.store.scan(MACHINES):
            if host.worker and machine.id in running and machine.state is State.STARTED and machine.id not in changing:
                self._say(f"machine {machine.id} ends by itself")
                host.world.host.end(machine.id, 1)
                self._own_exits.exited(machine.id, self._clock.monotonic())
                self._excused.add(machine.id)
                return

    async def _resume(self, after_s: float, version: int) -> None:
        """Until it is done, since nobody else would; a pause whose answer was lost may have been heard."""
        await self._clock.sleep(after_s)
        params = DeployParams(app_name=APP, version=str(version))
        while any(record.ended_at is None for record in self._records(version)):
            up = next((host for host in self._hosts.values() if host.worker is not None), None)
            if up is not None and any(record.asked == "pause" for record in self._records(version)):
                self._let_go_on()
                try:
                    await up.broker.call(RESUME_DEPLOY, params=params)
                except HawkerError as error:
                    self._say(f"resume: {error}")
            await self._clock.sleep(5.0)

    def _records(self, version: int) -> list[DeployRecord]:
        """One deploy, as each host knows it."""
        return [deploy for deploy in self._deploys() if deploy.version == version]

    def _deploys(self) -> list[DeployRecord]:
        return [deploy for host in self._hosts.values() for _, deploy in host.world.store.scan(DEPLOYS)]

    async def _rest(self) -> None:
        """All is healed and up, and everything has come to its end."""
        self._heal()
        self._ambushes.clear()
        self._fleet.doubted.clear()
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


def _as_if_serving(sight: DeploySight, machines: Collection[MachineId]) -> DeploySight:
    """What ended by itself is no deploy's to answer for."""
    return structs.replace(sight, running=sight.running.union(machines), serving=sight.serving.union(machines))


GAME: SeededGame[DeployKit, DeployRunPlan, DeployOutcome] = SeededGame(sound=SOUND, run=DeploySimulation)
play, shrink = GAME.play, GAME.shrink
