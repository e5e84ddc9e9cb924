"""`hawker chaos deploys`: an app is deployed again and again over a real fleet, behind its edges and under load, and
each time something befalls the deploy. Whoever is killed, it ends as was promised: every machine is of the release that
counts, no machine is left over, and no request is lost at an edge that was spared.

Hosts are network namespaces. For root; all of it is gone at the end.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.to_thread import run_sync

from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
)
from hawker.chaos.deploys.deploy_blow import CREATES, UPDATES, WHOLE, BlowKind, TrialBlow
from hawker.chaos.deploys.deploy_report import DeployRow, DeploysReport
from hawker.chaos.deploys.deployed_app import (
    APP,
    HERE,
    IMAGE,
    LOOK_S,
    PORT,
    WITHIN_S,
    DeployedApp,
    TooEarly,
    app_of,
    definition,
    deploy_params,
    edge_fleet,
)
from hawker.chaos.deploys.edge_clients import EdgeClients
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.clock import Clock
from hawker.deploys.releases import ReleaseStatus
from hawker.errors import HawkerError
from hawker.failpoint import LISTING
from hawker.ids import NodeId
from hawker.value_object import ValueObject

REGIONS = ("mad", "ams", "lhr")
_PACE_S = 0.2
_BETWEEN_S = 2.0  # from one voter's death to the other's
_UNDER_WAY = frozenset({"changing", "proving", "returning"})


class DeployTrialPlan(ValueObject, frozen=True, kw_only=True):
    """One machine of the app at each of so many `nodes`, over three regions. `strategies` and `kinds` are dealt each
    with each; with `places` a node also dies at each place of the flows that change a machine, those that begin with
    one of these. `away_s` is how long a daemon stays away, `parted_s` a region."""

    nodes: int = 10
    strategies: tuple[str, ...] = ("rolling", "bluegreen")
    kinds: tuple[BlowKind, ...] = WHOLE
    places: tuple[str, ...] = (UPDATES, CREATES)
    away_s: float = 3.0
    parted_s: float = 60.0
    where: Path | None = None


async def run_deploy_trial(plan: DeployTrialPlan, clock: Clock, tell: Callable[[DeployRow], None]) -> DeploysReport:
    """Each row is told as soon as it is known. Raises `HawkerError` when the nodes cannot be had at all."""
    began = clock.monotonic()
    with TemporaryDirectory(prefix="hawker-chaos-", dir=plan.where) as made:
        directory = Path(made)
        with edge_fleet(directory, clock, plan.nodes, REGIONS) as fleet:
            async with app_of(fleet, clock, REGIONS) as app:
                trial = DeployTrial(plan, clock, tell, app, directory)
                await trial.run()
                trial.findings += await trial.judged()
    findings = (*trial.findings, *(f"left on the host: {trace}" for trace in fleet.left))
    return DeploysReport(nodes=plan.nodes, seconds=clock.monotonic() - began, rows=tuple(trial.rows), findings=findings)


class _Round:
    """One deploy, whose machines say its number: what is known of it, who is spared, and when the blow fell."""

    def __init__(self, number: int, blow: TrialBlow) -> None:
        self.number = number
        self.version = 0
        self.blow = blow
        self.hit: set[NodeId] = set()
        self.seen: list[tuple[float, DeployInfo]] = []
        self.struck_at: float | None = None
        self.over_at = 0.0
        self.findings: list[str] = []

    @property
    def latest(self) -> DeployInfo | None:
        return self.seen[-1][1] if self.seen else None

    def next_s(self) -> float | None:
        """From the blow until another slot was seen to have moved than before it."""
        at = self.struck_at
        if at is None:
            return None
        before = [info for when, info in self.seen if when <= at]
        known = {(slot.number, slot.state) for slot in before[-1].slots} if before else set()
        for when, info in self.seen:
            if when > at and {(slot.number, slot.state) for slot in info.slots} - known:
                return when - at
        return None


class DeployTrial:
    def __init__(
        self,
        plan: DeployTrialPlan,
        clock: Clock,
        tell: Callable[[DeployRow], None],
        app: DeployedApp,
        directory: Path,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._app = app
        self._fleet = fleet = app.fleet
        self._directory = directory
        self._load = EdgeClients([stall.host.address for stall in fleet.stalls], PORT, clock, _PACE_S)
        self._counts = 0  # the number of the round whose release counts
        self._accepted: list[int] = []
        self._aborted: list[int] = []
        self._bad: list[int] = []
        self.rows: list[DeployRow] = []
        self.findings: list[str] = []

    async def run(self) -> None:
        """Every blow, with clients that ask all the time."""
        try:
            await self._app.stock()
            for stall in self._fleet.stalls:
                await self._app.patiently(partial(self._load.answers, stall.host.address))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._load.serve)
                await self._blows()
                tasks.cancel_scope.cancel()
        except HawkerError as error:
            self.findings.append(f"the trial could not go on: {type(error).__name__}: {error}")

    async def _blows(self) -> None:
        for strategy in self._plan.strategies:
            for kind in self._plan.kinds:
                await self._deal(TrialBlow(strategy, kind))
            if self._plan.places:
                for place in await self._rehearsed(strategy):
                    await self._deal(TrialBlow(strategy, BlowKind.PLACE, place))

    async def _rehearsed(self, strategy: str) -> list[str]:
        """The places that a node comes by when its machine is changed, in their order."""
        stall = self._fleet.stalls[-1]
        await self._app.again(stall, LISTING)
        await self._deal(TrialBlow(strategy, BlowKind.NONE))
        met = [place for place in stall.daemon.reached() if place.startswith(self._plan.places)]
        await self._app.again(stall)
        return list(dict.fromkeys(met))

    # A blow.

    async def _deal(self, blow: TrialBlow) -> None:
        if blow.place:
            await self._app.again(self._fleet.stalls[-1], blow.place)
        self._load.forget()
        played = _Round(len(self.rows) + 1, blow)
        end, rest_s = "-", None
        try:
            end, rest_s = await self._dealt(played)
        except HawkerError as error:
            played.findings.append(f"{type(error).__name__}: {error}")
            await self._app.mend()
        spared = {stall.host.address for stall in self._fleet.stalls if stall.id not in played.hit}
        lost = self._load.lost(spared)
        if lost:
            first = f"{lost[0].at - (played.struck_at or lost[0].at):+.1f} s at {lost[0].edge}: {lost[0].what}"
            played.findings.append(f"{len(lost)} requests were lost, the first {first}")
        row = DeployRow(
            strategy=blow.strategy,
            blow=str(blow),
            end=end,
            error=played.latest.error if played.latest is not None else "",
            next_s=played.next_s(),
            rest_s=rest_s,
            requests=self._load.sent(spared),
            lost=len(lost),
            findings=tuple(played.findings),
        )
        self.rows.append(row)
        self._tell(row)

    async def _dealt(self, played: _Round) -> tuple[str, float]:
        """How it ended, and seconds until all was at rest. Raises `HawkerError` when it does not come to that."""
        blow, failed = played.blow, list[HawkerError]()
        await self._begin(played)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, played)
            try:
                await self._strike(played)
                played.over_at = self._clock.monotonic()
                await self._app.patiently(lambda: self._ended(played))
            except HawkerError as error:
                failed.append(error)
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        ended = await self._app.patiently(lambda: self._ended(played))
        if ended.status not in blow.kind.ends:
            played.findings.append(f"it is {ended.status}: {ended.error}")
        if ended.status == ReleaseStatus.COMPLETE:
            self._counts = played.number
        await self._app.patiently(self._app.everybody_is_here)
        await self._app.patiently(lambda: self._app.at_rest(self._counts))
        rest_s = self._clock.monotonic() - played.over_at
        for stall in self._fleet.stalls:
            await self._app.patiently(partial(self._load.answers, stall.host.address))
        played.findings += await self._judged(played)
        return ended.status, rest_s

    async def _begin(self, played: _Round) -> None:
        """By a client of its own, where that is to be killed."""
        number, label = played.number, f"round {played.number}"
        words = definition(number, bad=played.blow.kind.is_bad)
        strategy: Any = played.blow.strategy
        if played.blow.kind is BlowKind.CLIENT:
            begin = partial(self._app.begin_client, words, strategy, label, self._directory)
            client = await self._app.patiently(lambda: run_sync(begin))
            version = (await self._app.patiently(lambda: self._running(label))).version
            await run_sync(_kill, client)
            played.struck_at = self._clock.monotonic()
        else:
            body = CreateDeployRequest(definition=words, image=IMAGE, strategy=strategy, label=label)
            version = (await self._app.patiently(lambda: self._ordered(label, body))).version
        played.version = version
        self._accepted.append(version)
        if played.blow.kind.is_bad:
            self._bad.append(version)

    async def _ordered(self, label: str, body: CreateDeployRequest) -> DeployInfo:
        """An order whose answer was lost may have been taken: then it is that one."""
        try:
            return await self._app.call(CREATE_DEPLOY, params=HERE, body=body, timeout_s=60.0)
        except HawkerError:
            found = await self._running(label)
            if found is None:
                raise
            return found

    async def _running(self, label: str) -> DeployInfo | None:
        """The newest one, if it is that. The home also deploys by itself, for machines whose hosts were away."""
        newest = DeployParams(app_name=APP, version="latest")
        found = await self._app.quietly(self._app.call(GET_DEPLOY, params=newest))
        return found if found is not None and found.label == label else None

    async def _strike(self, played: _Round) -> None:
        kind, parted = played.blow.kind, self._plan.parted_s
        if kind in (BlowKind.NONE, BlowKind.CLIENT):
            return
        if kind is BlowKind.BAD:
            return
        if kind is BlowKind.PLACE:
            return await self._dies(played, self._fleet.stalls[-1])
        returns = kind is BlowKind.BAD_DRIVER and played.blow.strategy != "bluegreen"  # whose way back is too short
        states = {"returning"} if returns else _UNDER_WAY
        driver = self._app.stall(await self._app.patiently(lambda: self._driver(played, states)))
        if kind in (BlowKind.DRIVER, BlowKind.PAUSE, BlowKind.ABORT):
            await self._ask(played, kind)
            await self._crash(played, [driver])
            await self._resume(played)
        elif kind in (BlowKind.DRIVER_HOST, BlowKind.BAD_DRIVER):
            await self._power(played, driver)
        elif kind is BlowKind.VOTERS:
            info = played.latest
            assert info is not None, "its driver was seen"
            await self._crash(played, [self._app.stall(NodeId(node)) for node in info.voters if node != driver.id])
        elif kind is BlowKind.EDGE:
            self._strikes(played, [self._fleet.stalls[-1]])
            _end_edge(self._fleet.stalls[-1])
        elif kind is BlowKind.REGION:
            far = [stall for number, stall in enumerate(self._fleet.stalls) if number % len(REGIONS) == 1]
            near = [stall for stall in self._fleet.stalls if stall not in far]
            self._strikes(played, far)
            await run_sync(self._fleet.lab.part, [each.host for each in far], [each.host for each in near])
            await self._clock.sleep(parted)
            await run_sync(self._fleet.lab.heal)

    def _strikes(self, played: _Round, stalls: Sequence[LabNode], *, hosts: bool = True) -> None:
        """From now on; their edges are not spared where their hosts are hit."""
        played.struck_at = self._clock.monotonic() if played.struck_at is None else played.struck_at
        if hosts:
            played.hit.update(stall.id for stall in stalls)

    async def _ask(self, played: _Round, kind: BlowKind) -> None:
        """What a person says before the driver dies. Once it is answered it holds."""
        params = deploy_params(played.version)
        if kind is BlowKind.PAUSE:
            await self._app.patiently(lambda: self._app.call(PAUSE_DEPLOY, params=params))
        elif kind is BlowKind.ABORT:
            await self._app.patiently(lambda: self._app.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest()))
            self._aborted.append(played.version)

    async def _resume(self, played: _Round) -> None:
        """A deploy that was paused is, whoever drives it now; and then it goes on."""
        if played.blow.kind is not BlowKind.PAUSE:
            return
        shown = await self._app.patiently(lambda: self._app.quietly(self._shown(played)))
        if shown.status != "paused":
            played.findings.append(f"its pause was acknowledged, and it is {shown.status}")
        params = deploy_params(played.version)

        async def resumed() -> bool:
            """An answer may be lost: then it is resumed all the same."""
            with suppress(HawkerError):
                await self._app.call(RESUME_DEPLOY, params=params)
                return True
            return (await self._shown(played)).status != "paused"

        await self._app.patiently(resumed)

    async def _crash(self, played: _Round, stalls: Sequence[LabNode]) -> None:
        """Their daemons, one after the other; machines and edges go on."""
        self._strikes(played, stalls, hosts=False)
        for stall in stalls:
            await run_sync(stall.crash)
            if stall is not stalls[-1]:
                await self._clock.sleep(_BETWEEN_S)
        await self._clock.sleep(self._plan.away_s)
        for stall in stalls:
            await run_sync(stall.restart)

    async def _power(self, played: _Round, stall: LabNode) -> None:
        """Until another node has gone on with the deploy, or it has ended."""
        lost = stall.id
        self._strikes(played, [stall])
        await run_sync(stall.power_off)

        async def goes_on() -> bool:
            info = played.latest
            return info is not None and (info.ended_at is not None or info.coordinator != lost)

        try:
            await self._app.patiently(goes_on)
        finally:
            await run_sync(stall.power_on)

    async def _dies(self, played: _Round, stall: LabNode) -> None:
        """It does so by itself, where its machine is changed; or the deploy comes to its end without that."""
        until = self._clock.monotonic() + WITHIN_S
        while stall.daemon.alive and self._clock.monotonic() < until:
            info = played.latest
            if info is not None and info.ended_at is not None:
                break
            await self._clock.sleep(LOOK_S)
        if stall.daemon.alive:
            played.findings.append("it did not die there")
            await self._app.again(stall)
            return
        self._strikes(played, [stall], hosts=False)
        await self._clock.sleep(self._plan.away_s)
        await run_sync(stall.restart)

    # What is seen.

    async def _watch(self, played: _Round) -> None:
        """Each state of the deploy, as soon as a broker tells of it."""
        while True:
            with suppress(HawkerError):
                info = await self._shown(played)
                latest = played.latest
                if latest is None or info != latest:
                    played.seen.append((self._clock.monotonic(), info))
            await self._clock.sleep(LOOK_S)

    async def _shown(self, played: _Round) -> DeployInfo:
        return await self._app.call(GET_DEPLOY, params=deploy_params(played.version), avoid=played.hit)

    async def _driver(self, played: _Round, states: Collection[str]) -> NodeId | None:
        """Once a machine is in one of these states. Raises `Unavailable` when the deploy ends before."""
        info = played.latest
        if info is None:
            return None
        if any(slot.state in states for slot in info.slots) and info.coordinator:
            return NodeId(info.coordinator)
        if info.ended_at is not None:
            raise TooEarly(f"the deploy is {info.status} before the blow: {info.error}")
        return None

    async def _ended(self, played: _Round) -> DeployInfo | None:
        info = await self._shown(played)
        return info if info.ended_at is not None else None

    async def judged(self) -> list[str]:
        """What the nodes have written down of all its deploys, once their daemons have ended."""
        return await self._app.judged_stores(self._accepted, self._aborted, self._bad)

    async def _judged(self, played: _Round) -> list[str]:
        found = []
        for each in await self._app.machines():
            if each.cordoned:
                found.append(f"machine {each.id} is out of routing")
        return found


def _kill(client: "subprocess.Popen[bytes]") -> None:
    client.kill()
    client.communicate()


def _end_edge(stall: LabNode) -> None:
    """The process that serves; its parent starts another one."""
    for pid in _edge_processes(stall.daemon.data_dir):
        os.kill(pid, signal.SIGKILL)


def _edge_processes(data_dir: Path) -> Iterator[int]:
    wanted = f"edge-process --data-dir {data_dir}".split()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if wanted[0] in words and wanted[2] in words:
                    yield int(entry.name)
