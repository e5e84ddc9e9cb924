"""How long deploys take over ten real nodes, each on a host of its own behind its edge: an app of a hundred machines
with one check, by our usual pace, by that of a client that watches each machine for 10 s, by bluegreen, all at once,
and a release that fails its checks until all is as before; the accepts, and the driver's memory. With `blows`: how soon
another machine is changed when the driver's daemon or host is lost, and deploys whose client is killed.

    python bench/deploys_fleet.py [machines at each of ten hosts]
    python bench/deploys_fleet.py blows [times]
"""

import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from hawker.api.contract.deploy import CREATE_DEPLOY, GET_DEPLOY, CreateDeployRequest, DeployInfo, GetDeployQuery
from hawker.chaos.deploys.deploy_blow import BlowKind
from hawker.chaos.deploys.deploy_trial import DeployTrialPlan, run_deploy_trial
from hawker.chaos.deploys.deployed_app import HERE, IMAGE, DeployedApp, app_of, definition, deploy_params, edge_fleet
from hawker.clock import SystemClock
from hawker.errors import Conflict, HawkerError
from hawker.ids import NodeId

NODES, REGIONS = 10, ("mad",)
ACCEPTS = 20
OURS = {"smoke": "10s", "smoke_rest": "3s"}
WATCHED = {"smoke": "10s", "smoke_rest": "10s"}


class Deploys:
    def __init__(self, app: DeployedApp) -> None:
        self.app = app
        self.accepts: list[float] = []
        self.release = 0
        self.grown_kib = 0

    async def deploy(self, strategy: Any, pace: dict[str, str], *, bad: bool = False) -> tuple[DeployInfo, float]:
        """How it ended, and seconds from the order to that."""
        self.release += 1
        words = definition(self.release, bad=bad, **pace)
        body = CreateDeployRequest(definition=words, image=IMAGE, strategy=strategy)
        began, found = await self._accepted(body)
        self.accepts.append((time.perf_counter() - began) * 1000)
        before = self._resident(found)
        while found.ended_at is None:
            with suppress(HawkerError):
                query = GetDeployQuery(after=found.serial, wait=0.5)
                found = await self.app.call(GET_DEPLOY, params=deploy_params(found.version), query=query)
            before = before or self._resident(found)
            self.grown_kib = max(self.grown_kib, self._resident(found) - before)
        return found, time.perf_counter() - began

    async def _accepted(self, body: CreateDeployRequest) -> tuple[float, DeployInfo]:
        """When it was sent, too. The deploy before it has ended, and its run may be about to."""
        while True:
            began = time.perf_counter()
            try:
                return began, await self.app.call(CREATE_DEPLOY, params=HERE, body=body, timeout_s=60.0)
            except Conflict:
                await SystemClock().sleep(0.2)

    def _resident(self, found: DeployInfo) -> int:
        """Of the daemon that drives it, in KiB."""
        if not found.coordinator:
            return 0
        pid = self.app.stall(NodeId(found.coordinator)).daemon.pid
        status = Path(f"/proc/{pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


async def hundred(each: int) -> None:
    with TemporaryDirectory() as made, edge_fleet(Path(made), SystemClock(), NODES, REGIONS) as fleet:
        async with app_of(fleet, SystemClock(), REGIONS, each=each) as app:
            await app.stock()
            deploys = Deploys(app)
            print(f"| {NODES * each} machines over {NODES} nodes, one check | seconds | ended | machines ever on it |")
            print("|---|---:|---|---:|")
            for name, strategy, pace, bad in (
                ("rolling, 0.33, usual pace (3 s for each but the first)", "rolling", OURS, False),
                ("rolling, 0.33, each watched for 10 s", "rolling", WATCHED, False),
                ("bluegreen, usual pace", "bluegreen", OURS, False),
                ("immediate", "immediate", OURS, False),
                ("rolling, a release that fails its checks for 6 s, until all is as before", "rolling", OURS, True),
            ):
                found, took_s = await deploys.deploy(strategy, pace, bad=bad)
                touched = sum(slot.state != "waiting" and slot.kind != "destroy" for slot in found.slots)
                print(f"| {name} | {took_s:.1f} | {found.status} {found.error[:60]} | {touched} |", flush=True)
            print(f"\nmemory of the driver: at most {deploys.grown_kib / 1024:.1f} MiB more while a deploy runs")
            deploys.accepts.clear()
            for _ in range(ACCEPTS):
                await deploys.deploy("immediate", OURS)
            print(f"accept, three nodes keep it: {_spread(deploys.accepts, 'ms')} of {ACCEPTS}")


async def blows(times: int) -> None:
    kinds = (*[BlowKind.DRIVER] * times, *[BlowKind.DRIVER_HOST] * times, *[BlowKind.CLIENT] * times)
    plan = DeployTrialPlan(nodes=NODES, strategies=("rolling",), kinds=kinds, places=(), away_s=0.0)
    report = await run_deploy_trial(plan, SystemClock(), lambda row: print(row.blow, row.end, row.next_s, flush=True))
    for kind in (BlowKind.DRIVER, BlowKind.DRIVER_HOST):
        found = [row.next_s for row in report.rows if row.blow == kind.value and row.next_s is not None]
        print(f"{kind.value}: the next machine after {_spread(found, 's')} of {len(found)}")
    ends = [row.end for row in report.rows if row.blow == BlowKind.CLIENT.value]
    print(f"client killed: {ends.count('complete')} of {len(ends)} complete")
    lost, sent = sum(row.lost for row in report.rows), sum(row.requests for row in report.rows)
    print(f"requests lost: {lost} of {sent}; findings: {report.found}")


def _spread(found: Sequence[float], unit: str) -> str:
    return f"p50 {statistics.median(found):.1f}, at most {max(found):.1f} {unit}" if found else "none"


if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked[:1] == ["blows"]:
        anyio.run(blows, int(asked[1]) if len(asked) > 1 else 10)
    else:
        anyio.run(hundred, int(asked[0]) if asked else 10)
