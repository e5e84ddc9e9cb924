"""Deploys on a whole worker, whose time is simulated: what becomes of an app's machines."""

from contextlib import suppress
from typing import Any

import anyio
import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    CREATE_DEPLOY,
    GET_DEPLOY,
    PAUSE_DEPLOY,
    RESUME_DEPLOY,
    AbortDeployRequest,
    CreateDeployRequest,
    Deploy,
    DeployParams,
    GetDeployQuery,
)
from hawker.api.contract.machine import LIST_MACHINES, Machine
from hawker.api.contract.release import CREATE_RELEASE, CreateReleaseRequest
from hawker.errors import Conflict, HawkerError, WrongState
from hawker.machine import State
from hawker.record.app import RELEASES
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio

HELLO = "hawker/hello"
WEB = {"processes": {"web": "serve", "jobs": "work"}}


async def deploy(worker: SimWorker, definition: dict[str, Any] | None = None, **body: Any) -> Deploy:
    request = CreateDeployRequest(definition=definition or {}, image=body.pop("image", HELLO), **body)
    return await worker.api.call(CREATE_DEPLOY, params=AppParams(app_name=APP), body=request)


async def ended(worker: SimWorker, version: int | str = "latest") -> Deploy:
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


async def test_a_first_deploy_makes_a_machine_for_each_group(worker: SimWorker) -> None:
    begun = await deploy(worker, WEB)
    assert (begun.version, begun.status, [slot.kind for slot in begun.slots]) == (1, "running", ["create", "create"])
    assert (await ended(worker)).status == "complete"
    assert groups(await machines(worker)) == [("jobs", "1", State.STARTED), ("web", "1", State.STARTED)]


async def test_the_next_deploy_updates_the_machines_that_are_there(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    before = {each.id for each in await machines(worker)}
    await deploy(worker, WEB | {"env": {"A": "2"}})
    found = await ended(worker)
    assert (found.version, found.status) == (2, "complete")
    after = await machines(worker)
    assert {each.id for each in after} == before
    assert groups(after) == [("jobs", "2", State.STARTED), ("web", "2", State.STARTED)]
    assert all(each.config and each.config.env and each.config.env["A"] == "2" for each in after)


BAD = {"experimental": {"cmd": ["exit", "3"]}, "restart": [{"policy": "always"}]}
CHECKED = {"checks": {"up": {"type": "tcp", "port": 8080, "interval": "2s", "timeout": "1s"}}}


async def test_a_release_that_crashes_is_taken_back_and_one_machine_was_ever_on_it(worker: SimWorker) -> None:
    services = {"services": [{"internal_port": 8080, "ports": [{"port": 80}]}]}
    await deploy(worker, services)
    await ended(worker)
    before = {each.id: each.config for each in await machines(worker)}
    await deploy(worker, services | BAD)
    found = await ended(worker)
    assert found.status == "rolled_back" and "it crashes again and again with status 3" in found.error
    assert sorted(slot.state for slot in found.slots) == ["returned", "waiting"]
    assert {each.id: each.config for each in await machines(worker)} == before


async def test_without_rollback_a_failed_deploy_stays_where_it_is(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    await deploy(worker, BAD | {"hawker": {"deploy": {"rollback": False}}})
    found = await ended(worker)
    assert found.status == "failed" and found.error.endswith("machines stay as they are")
    assert [release for _, release, _ in groups(await machines(worker))] == ["2"]


async def test_a_group_that_is_gone_loses_its_machines_at_the_end(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    await deploy(worker, {"processes": {"web": "serve"}})
    assert (await ended(worker)).status == "complete"
    assert groups(await machines(worker)) == [("web", "2", State.STARTED)]


async def test_machines_of_no_process_group_are_left_alone(worker: SimWorker) -> None:
    other = await worker.started()
    begun = await deploy(worker)
    assert (begun.alone, len(begun.slots)) == (1, 1)
    await ended(worker)
    assert (await worker.get(other)).config.metadata is None  # type: ignore[union-attr]


async def test_a_machine_at_rest_gets_the_release_and_stays_at_rest(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (machine,) = await machines(worker)
    await worker.stop(machine.id)
    await worker.reaches(machine.id, State.STOPPED)
    await deploy(worker)
    assert (await ended(worker)).status == "complete"
    assert groups(await machines(worker)) == [("app", "2", State.STOPPED)]


async def test_bluegreen_replaces_all_machines_and_leaves_as_many(worker: SimWorker) -> None:
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    begun = await deploy(worker, CHECKED, strategy="bluegreen")
    assert [slot.kind for slot in begun.slots] == ["create", "destroy"]
    assert (await ended(worker)).status == "complete"
    (green,) = await machines(worker)
    assert green.id != blue.id and not green.cordoned and green.state is State.STARTED


async def test_bluegreen_that_fails_leaves_the_blue_machines_as_they_were(worker: SimWorker) -> None:
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    await deploy(worker, CHECKED | BAD, strategy="bluegreen")
    assert (await ended(worker)).status == "rolled_back"
    (left,) = await machines(worker)
    assert (left.id, left.version, left.cordoned) == (blue.id, blue.version, False)


async def test_a_canary_that_fails_is_the_only_machine_that_was_touched(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, BAD, strategy="canary")
    found = await ended(worker)
    assert [(slot.kind, slot.state) for slot in found.slots] == [("canary", "returned"), ("update", "waiting")]
    (after,) = await machines(worker)
    assert after.version == before.version


async def test_immediate_waits_for_no_gate_and_takes_nothing_back(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    await deploy(worker, BAD, strategy="immediate")
    assert (await ended(worker)).status == "complete"


async def test_a_release_command_that_fails_touches_no_machine(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, {"deploy": {"release_command": "exit 1"}})
    found = await ended(worker)
    assert found.status == "rolled_back" and "the release command failed, with status 1" in found.error
    assert [each.version for each in await machines(worker)] == [before.version]


async def test_a_release_command_that_takes_too_long_is_ended(worker: SimWorker) -> None:
    await deploy(worker, {"deploy": {"release_command": "sleep 900", "release_command_timeout": "20s"}})
    assert "timed out after 20 s" in (await ended(worker)).error
    assert await machines(worker) == []


async def test_a_lease_that_a_client_holds_is_waited_for(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (machine,) = await machines(worker)
    await worker.lease(machine.id, 40)
    await deploy(worker, {"env": {"A": "2"}})
    assert (await ended(worker)).status == "complete"
    assert groups(await machines(worker)) == [("app", "2", State.STARTED)]


async def test_a_machine_that_somebody_else_changes_fails_the_deploy(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (machine,) = await machines(worker)
    begun = await deploy(worker)
    await worker.api.call(PAUSE_DEPLOY, params=DeployParams(app_name=APP, version=str(begun.version)))
    await worker.update(machine.id, env={"A": "theirs"})
    await worker.reaches(machine.id, State.STARTED)
    await worker.api.call(RESUME_DEPLOY, params=DeployParams(app_name=APP, version=str(begun.version)))
    found = await ended(worker)
    assert found.status == "rolled_back" and "somebody else changed it" in found.error
    (after,) = await machines(worker)
    assert after.config is not None and after.config.env == {"A": "theirs"}


async def test_a_paused_deploy_begins_with_no_machine_until_it_is_resumed(worker: SimWorker) -> None:
    begun = await deploy(worker, WEB)
    params = DeployParams(app_name=APP, version=str(begun.version))
    assert (await worker.api.call(PAUSE_DEPLOY, params=params)).status == "paused"
    await worker.parts.deps.clock.sleep(3600)
    assert len(await machines(worker)) <= 2
    assert (await worker.api.call(GET_DEPLOY, params=params)).status == "paused"
    await worker.api.call(RESUME_DEPLOY, params=params)
    assert (await ended(worker)).status == "complete"
    with pytest.raises(WrongState, match="has ended: complete"):
        await worker.api.call(PAUSE_DEPLOY, params=params)


@pytest.mark.parametrize(("keep", "status", "releases"), [(False, "rolled_back", ["1"]), (True, "interrupted", ["2"])])
async def test_an_abort_takes_back_or_keeps(worker: SimWorker, keep: bool, status: str, releases: list[str]) -> None:
    await deploy(worker)
    await ended(worker)
    begun = await deploy(worker, {"hawker": {"deploy": {"smoke": "10m"}}})
    params = DeployParams(app_name=APP, version=str(begun.version))
    found = begun
    while found.slots[0].state != "proving":
        found = await worker.api.call(GET_DEPLOY, params=params, query=GetDeployQuery(after=found.serial, wait=30.0))
    await worker.api.call(ABORT_DEPLOY, params=params, body=AbortDeployRequest(keep=keep))
    assert (await ended(worker)).status == status
    assert [release for _, release, _ in groups(await machines(worker))] == releases


async def test_a_second_deploy_is_refused_while_one_is_under_way(worker: SimWorker) -> None:
    await deploy(worker)
    with pytest.raises(Conflict, match="is under way"):
        await deploy(worker)
    with pytest.raises(Conflict, match="is under way"):
        await worker.api.call(CREATE_RELEASE, params=AppParams(app_name=APP), body=CreateReleaseRequest(image="x"))
    await ended(worker)


@pytest.mark.parametrize(
    ("definition", "body", "text"),
    [
        ({"http_service": {"internal_port": "abc"}}, {}, "http_service.internal_port"),
        ({"surprise": 1}, {}, "surprise"),
        ({}, {"image": None}, "there is no image"),
        ({}, {"strategy": "bluegreen"}, "bluegreen needs a check"),
        ({"files": [{"guest_path": "/a", "secret_name": "NOPE"}]}, {}, "has no such secret"),
        ({"files": [{"guest_path": "/a", "local_path": "a"}]}, {}, "no local_path"),
        ({"mounts": [{"source": "data", "destination": "/data"}]}, {}, "hawker volumes create data -a stall"),
        ({"mounts": [{"source": "data", "destination": "/data"}]}, {"strategy": "canary"}, "cannot have"),
        ({}, {"label": "x" * 2001}, "description"),
        ({}, {"image": "oci:/nowhere"}, "nowhere"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_touched(
    worker: SimWorker, definition: dict[str, Any], body: dict[str, Any], text: str
) -> None:
    with pytest.raises(HawkerError, match=text):
        await deploy(worker, definition, **body)
    assert worker.store.count(RELEASES) == worker.store.count(DEPLOYS) == 0
    assert await machines(worker) == []


async def test_a_dry_run_says_what_would_be_and_does_nothing(worker: SimWorker) -> None:
    shown = await deploy(worker, WEB, dry_run=True)
    assert (shown.status, [slot.kind for slot in shown.slots]) == ("planned", ["create", "create"])
    assert worker.store.count(DEPLOYS) == 0 and await machines(worker) == []


async def test_what_goes_with_the_app_goes_with_it(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    for machine in await machines(worker):
        await worker.destroy(machine.id, force=True)
        await worker.reaches(machine.id, State.DESTROYED)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert worker.store.count(DEPLOYS) == worker.store.count(DEPLOY_SLOTS) == 0


@pytest.mark.parametrize("edges", [1, 2, 5, 9, 14, 20])
async def test_a_deploy_whose_daemon_is_killed_again_and_again_ends_complete(stall: MemoryWorld, edges: int) -> None:
    """At another effect on the host each time; the next daemon goes on, and nothing is there twice."""
    async with stall.open() as worker:
        await worker.app()
        await deploy(worker, WEB)
        await ended(worker)
        await deploy(worker, WEB | {"env": {"A": "2"}})
    for _ in range(4):
        stall.crash()
        stall.crash_points.burns_at = stall.crash_points.edges + edges
        with suppress(Death):
            async with stall.open() as worker:
                await worker.parts.deps.clock.sleep(30)
    stall.crash()
    stall.crash_points.burns_at = None
    async with stall.open() as worker:
        assert (await ended(worker)).status == "complete"
        await worker.at_rest()
        assert groups(await machines(worker)) == [("jobs", "2", State.STARTED), ("web", "2", State.STARTED)]
