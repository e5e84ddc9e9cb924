"""Deploys for tests on a whole worker whose time is simulated: begun, waited for, and what became of machines."""

from typing import Any

import anyio

from hawker.api.contract.app import AppParams
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    DeployInfo,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.machine import LIST_MACHINES, Machine
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker

HELLO = "hawker/hello"
WEB = {"processes": {"web": "serve", "jobs": "work"}}
BAD = {"experimental": {"cmd": ["exit", "3"]}, "restart": [{"policy": "always"}]}
CHECKED = {"checks": {"up": {"type": "tcp", "port": 8080, "interval": "2s", "timeout": "1s"}}}


async def deploy(worker: SimWorker, definition: dict[str, Any] | None = None, **body: Any) -> DeployInfo:
    request = CreateDeployRequest(definition=definition or {}, image=body.pop("image", HELLO), **body)
    return await worker.api.call(CREATE_DEPLOY, params=AppParams(app_name=APP), body=request)


async def abort(worker: SimWorker) -> None:
    """Take back what the newest deploy changed."""
    params = DeployParams(app_name=APP, version="latest")
    await worker.api.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest())


async def ended(worker: SimWorker, version: int | str = "latest") -> DeployInfo:
    """The deploy once it has ended."""
    params = DeployParams(app_name=APP, version=str(version))
    found = await worker.api.call(GET_DEPLOY, params=params)
    with anyio.fail_after(3600):
        while found.ended_at is None:
            found = await worker.api.call(
                GET_DEPLOY, params=params, query=GetDeployQuery(after=found.serial, wait=30.0)
            )
    return found


async def machines(worker: SimWorker) -> list[Machine]:
    return list((await worker.api.call(LIST_MACHINES, params=AppParams(app_name=APP))).items)


def groups(found: list[Machine]) -> list[tuple[str, str, State]]:
    shown = []
    for each in found:
        assert each.config is not None and each.config.metadata is not None
        metadata = each.config.metadata
        shown.append((metadata["fly_process_group"], metadata["fly_release_version"], each.state))
    return sorted(shown)
