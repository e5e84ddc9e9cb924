"""One machine of a deploy after another, among others who change machines, and deaths of the daemon."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.deploy import PAUSE_DEPLOY, RESUME_DEPLOY, DeployParams
from hawker.api.contract.machine import GET_MACHINE, UPDATE_MACHINE, Machine
from hawker.api.contract.machine_operation import CORDON_MACHINE
from hawker.deploys.flows import _keep_green
from hawker.deploys.moves import Moves
from hawker.machine import State
from hawker.record.deploy import SlotKind, SlotRecord, SlotState
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.health import ProbeResult
from tests.deploys.deploying import CHECKED, WEB, deploy, ended, groups, machines
from tests.sim.deploys.fleets import played_deploys

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(("back", "notes"), [(True, [SlotState.DONE]), (False, [SlotState.LEFT])])
async def test_a_green_machine_that_an_earlier_try_left_goes_once_the_blue_ones_are_back(
    back: bool, notes: list[SlotState]
) -> None:
    left = SlotRecord(
        number=1, kind=SlotKind.CREATE, group="app", region=None, machine="m", state=SlotState.LEFT, at=0.0
    )
    deploy = AsyncMock(slots=Mock(return_value=[left]))
    deploy.again.return_value = Mock(cordoned=False, state=State.STARTED)
    await _keep_green(deploy, [] if back else ["app"])
    assert [call.kwargs["state"] for call in deploy.note.call_args_list] == notes


class _OldNews:
    """A gateway that has lost a machine's host once it was updated, and tells for a while what it knew before."""

    def __init__(self, inner: Caller, answers: int) -> None:
        self._inner, self._left = inner, answers
        self._before: Machine | None = None
        self._is_away = False

    async def call(self, route: Any, **options: Any) -> Any:
        found = await self._inner.call(route, **options)
        if route is UPDATE_MACHINE:
            self._is_away = True
        elif route is GET_MACHINE and not self._is_away:
            self._before = found
        elif route is GET_MACHINE and self._left:
            self._left -= 1
            assert self._before is not None, "a deploy looks at a machine before it changes it"
            return replace(self._before, host_status="unreachable", events=(), checks=())
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(("answers", "state"), [(3, "done"), (1000, "skipped")])
async def test_old_news_of_a_machine_whose_host_is_away_fail_no_deploy(
    worker: SimWorker, answers: int, state: str
) -> None:
    await deploy(worker)
    await ended(worker)
    fleet = worker.parts.deps.fleet
    fleet.meet(cast("Caller", _OldNews(fleet.caller, answers)))
    await deploy(worker, {"env": {"A": "2"}, "deploy": {"wait_timeout": "20s"}})
    found = await ended(worker)
    assert (found.status, [slot.state for slot in found.slots]) == ("complete", [state])


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


async def test_a_deploy_whose_daemon_is_killed_while_old_machines_go_looks_back_at_nothing(
    stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon begins at the first step, and puts no machine into routing or out of it again."""
    delete, each, calls = Moves.delete, Moves.each, list[Any]()

    async def then_dies(deploying: Moves, slot: SlotRecord) -> None:
        await delete(deploying, slot)
        raise Death

    async def counted(deploying: Moves, slots: Iterable[SlotRecord], route: Any) -> None:
        calls.append(route)
        await each(deploying, slots, route)

    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            await deploy(worker, CHECKED)
            await ended(worker)
            monkeypatch.setattr(Moves, "delete", then_dies)
            await deploy(worker, CHECKED, strategy="bluegreen")
            await ended(worker)
    stall.crash()
    monkeypatch.setattr(Moves, "delete", delete)
    monkeypatch.setattr(Moves, "each", counted)
    async with stall.open() as worker:
        assert (await ended(worker)).status == "complete"
        assert calls == []


@pytest.mark.parametrize(
    "place", ["deploy.switch before", "each", "deploy_back.take_back before", "deploy_back.take_back after"]
)
async def test_a_switch_whose_daemon_is_killed_goes_back_to_the_blue_machine_that_a_lease_kept_in_routing(
    stall: MemoryWorld, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after it is written down that old machines leave routing, and on the way back."""
    short = CHECKED | {"deploy": {"wait_timeout": "20s"}}
    each, calls = Moves.each, list[Any]()

    async def or_death(deploying: Moves, slots: Iterable[SlotRecord], route: Any) -> None:
        calls.append(route)
        if place == "each" and route is CORDON_MACHINE and calls.count(route) == 1:
            raise Death
        await each(deploying, slots, route)

    monkeypatch.setattr(Moves, "each", or_death)
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            await deploy(worker, short)
            await ended(worker)
            (blue,) = await machines(worker)
            await worker.lease(blue.id, 3600)
            stall.crash_points.burns_in = place if place != "each" else None
            await deploy(worker, short, strategy="bluegreen")
            await ended(worker)
    stall.crash()
    stall.crash_points.burns_in = None
    async with stall.open() as worker:
        assert (await ended(worker)).status == "rolled_back"
        await worker.at_rest()
        (left,) = await machines(worker)
        assert (left.id, left.state, left.cordoned) == (blue.id, State.STARTED, False)


async def test_regions_go_one_wave_after_the_other_and_the_first_is_watched_before_the_next() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy(hawker={"deploy": {"smoke": "1s", "smoke_rest": "1s", "bake": "60s"}})

        def watched() -> bool:
            record = fleet.record(fleet.home)
            return record is not None and "is watched" in record.stage

        await fleet.eventually(watched)
        first = [slot.region or "" for slot in (await fleet.shown(0)).slots if slot.state == "done"]
        waiting = {slot.region for slot in (await fleet.shown(0)).slots if slot.state == "waiting"}
        assert first == ["ams", "ams"] and waiting == {"mad", "lhr"}
        assert (await fleet.ended(0)).status == "complete"
        assert await fleet.settled() == []


async def test_a_way_back_takes_no_more_machines_of_a_region_than_the_way_forward() -> None:
    """Four machines in two regions have changed: two may be away at once, and one of each region."""
    async with played_deploys() as fleet:
        pace = {"smoke": "1s", "smoke_rest": "1s", "bake": "300s", "waves": [["ams"], ["lhr"]]}
        await fleet.deploy(hawker={"deploy": pace})

        async def done() -> int:
            return sum(slot.state == "done" for slot in (await fleet.shown(0)).slots)

        while await done() < 4:
            await fleet.passes(1.0)
        await fleet.abort()
        assert (await fleet.ended(0)).status == "rolled_back"
        assert await fleet.settled() == []


async def test_a_machine_that_had_proven_itself_and_falls_takes_the_deploy_back() -> None:
    async with played_deploys() as fleet:
        checks = {"up": {"type": "tcp", "port": 8080, "interval": "2s", "timeout": "1s", "grace_period": "1s"}}
        await fleet.deploy(checks=checks, hawker={"deploy": {"smoke": "1s", "smoke_rest": "1s", "bake": "300s"}})

        async def proven() -> bool:
            return any(slot.state == "done" for slot in (await fleet.shown(0)).slots)

        while not await proven():
            await fleet.passes(1.0)
        for host in fleet.hosts:
            host.world.prober.answers[8080] = ProbeResult(False, "it is gone")
        found = await fleet.ended(0)
        assert found.status == "rolled_back" and "is critical again" in found.error
        assert fleet.releases() == [""] * 8
