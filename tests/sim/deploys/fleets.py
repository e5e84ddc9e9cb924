"""Four played hosts over which an app's eight machines are, for tests that deploy themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    TAKE_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
)
from hawker.errors import HawkerError
from hawker.proof.violation import Violation
from hawker.record.app import APPS
from hawker.record.deploy import DEPLOY_REGISTERS, DEPLOYS, DeployRecord, RegisterRecord, deploy_key
from hawker.sim.deploys.deploy_host import SOUND, DeployHost, DeployKit
from hawker.sim.deploys.deploy_plan import DeployBlow, DeployRunPlan
from hawker.sim.deploys.deploy_run import DeploySimulation, _Ambush
from hawker.sim.fleet.network import NetworkCut
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP

FAST = {"deploy": {"smoke": "1s", "smoke_rest": "1s", "bake": "2s"}}
BAD: dict[str, Any] = {"experimental": {"cmd": ["exit", "3"]}, "restart": [{"policy": "always"}]}


class PlayedDeploys(DeploySimulation):
    """The first host is the app's home."""

    @property
    def hosts(self) -> list[DeployHost]:
        return list(self._hosts.values())

    @property
    def home(self) -> DeployHost:
        return self._home

    async def deploy(self, at: int = 0, **definition: Any) -> DeployInfo:
        body = CreateDeployRequest(definition={"hawker": FAST, **definition}, image="hawker/hello")
        return await self.hosts[at].broker.call(CREATE_DEPLOY, params=AppParams(app_name=APP), body=body)

    async def abort(self, version: int = 1) -> None:
        params = DeployParams(app_name=APP, version=str(version))
        await self.hosts[0].broker.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest())

    async def take(self, at: int, version: int = 1) -> DeployInfo:
        params = DeployParams(app_name=APP, version=str(version))
        return await self.hosts[at].broker.call(TAKE_DEPLOY, params=params)

    async def shown(self, at: int, version: int = 1) -> DeployInfo:
        params = DeployParams(app_name=APP, version=str(version))
        return await self.hosts[at].broker.call(GET_DEPLOY, params=params)

    def record(self, host: DeployHost, version: int = 1) -> DeployRecord | None:
        return host.world.store.get(DEPLOYS, deploy_key(APP, version))

    def register(self, host: DeployHost, version: int = 1) -> RegisterRecord | None:
        app = self.home.world.store.get(APPS, APP)
        assert app is not None
        return host.world.store.get(DEPLOY_REGISTERS, deploy_key(app.id, version))

    def voters(self, version: int = 1) -> list[DeployHost]:
        record = self.record(self.home, version)
        assert record is not None
        return [self._hosts[node] for node in record.voters]

    async def changes(self, version: int = 1) -> None:
        """A machine is being changed."""

        def begun() -> bool:
            found = [record for host in self.hosts if (record := self.record(host, version)) is not None]
            return any(record.stage.endswith("machines come to the release") for record in found)

        await eventually(self._clock, begun, 600)

    async def ended(self, at: int, version: int = 1) -> DeployInfo:
        """As any broker tells it, once it has ended."""
        found: list[DeployInfo] = []
        with anyio.fail_after(3600):
            while not found or found[0].ended_at is None:
                try:
                    found = [await self.shown(at, version)]
                except HawkerError:
                    found = []
                await self._clock.sleep(1.0)
        return found[0]

    async def eventually(self, condition: Any) -> None:
        await eventually(self._clock, condition, 3600, 0.05)

    async def passes(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def again(self, host: DeployHost) -> None:
        await host.begin(self._tasks)

    def part(self, host: DeployHost) -> None:
        """From all others, both ways."""
        others = frozenset(set(self._hosts) - {host.id})
        self._fleet.call_network.cuts.append(NetworkCut(frozenset({host.id}), others))

    def heal(self) -> None:
        self._heal()

    def strikes(self, place: str, blow: DeployBlow) -> None:
        """The home, when it comes by that place."""
        self._ambushes.append(_Ambush(self._home.id, place, 1, blow))

    @property
    def is_parted(self) -> bool:
        """Whether any link is cut."""
        return bool(self._fleet.call_network.cuts)

    def late(self, route: str, by_s: float) -> None:
        self._fleet.call_network.late_s = by_s
        self._fleet.call_network.late.append(route)

    def sends(self, at: int, route: Any, options: dict[str, Any]) -> None:
        """As if this host's coordinator had sent a change."""
        self._fleet.watches.sends(self.hosts[at].id, route, options)

    def found(self) -> list[Violation]:
        return list(self._found)

    async def settled(self) -> list[str]:
        """What is found once everything has come to its end."""
        await self._rest()
        self._judge()
        return [str(each) for each in self._found]

    def releases(self) -> list[str]:
        """Of which each machine is."""
        found = [record.config.metadata or {} for record in self._sight().machines()]
        return [each.get("fly_release_version", "") for each in found]


@asynccontextmanager
async def played_deploys(kit: DeployKit = SOUND, seed: int = 1) -> AsyncIterator[PlayedDeploys]:
    fleet = PlayedDeploys(DeployRunPlan(seed=seed, operations=()), kit)
    async with anyio.create_task_group() as tasks:
        await fleet.begin(tasks)
        yield fleet
        for host in fleet.hosts:
            await host.kill()
        tasks.cancel_scope.cancel()
