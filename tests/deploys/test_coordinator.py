"""Who drives a deploy, over four played hosts: it outlives the host that does, and nothing is done twice."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hawker.api.contract.deploy import (
    ABORT_DEPLOY,
    GRANT_TERM,
    PAUSE_DEPLOY,
    READ_REGISTER,
    RESUME_DEPLOY,
    WRITE_REGISTER,
    AbortDeployRequest,
    DeployParams,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call
from hawker.deploys.coordinator import Coordinator, HeldTerm
from hawker.deploys.deploy_table import DeployTable
from hawker.deploys.voters import TermLost
from hawker.errors import NotFound
from hawker.record.deploy import SlotKind, SlotRecord, SlotState
from hawker.sim.deploys.deploy_host import DeployKit
from hawker.sim.node.sim_worker import APP, SimWorker
from tests.deploys.deploying import CHECKED
from tests.sim.deploys.fleets import BAD, PlayedDeploys, played_deploys
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
BLUEGREEN: dict[str, Any] = {"deploy": {"strategy": "bluegreen"}, **CHECKED}
LATEST = DeployParams(app_name=APP, version="latest")


async def test_three_nodes_keep_a_deploy_as_it_ended() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        assert (await fleet.ended(3)).status == "complete"
        kept = [register for host in fleet.voters() if (register := fleet.register(host)) is not None]
        assert len(kept) == 3 and sum(register.ended for register in kept) >= 2
        assert await fleet.settled() == []


async def test_a_deploy_goes_on_at_another_node_when_its_home_is_lost() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        await fleet.home.kill(power=True)
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        found = await fleet.ended(fleet.hosts.index(other))
        assert found.status == "complete"
        assert {slot.state for slot in found.slots} <= {"done", "skipped"}
        assert sum(slot.state == "done" for slot in found.slots) >= 4
        await fleet.again(fleet.home)
        await fleet.eventually(lambda: (record := fleet.record(fleet.home)) is not None and record.ended_at is not None)
        record = fleet.record(fleet.home)
        assert record is not None and record.coordinator != fleet.home.id
        assert await fleet.settled() == []


async def test_a_deploy_whose_old_machines_go_is_completed_by_another_node_though_new_ones_are_away() -> None:
    """Those of the lost home: nothing goes back any more, since there is nothing to go back to."""
    async with played_deploys() as fleet:
        await fleet.deploy(**BLUEGREEN)
        await fleet.eventually(lambda: any(slot.state == "done" for slot in _old(fleet)))
        await fleet.home.kill(power=True)
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        found = await fleet.ended(fleet.hosts.index(other))
        assert found.status == "complete"
        assert {slot.state for slot in found.slots if slot.kind == "create"} == {"done"}
        await fleet.again(fleet.home)
        assert await fleet.settled() == []


def _old(fleet: PlayedDeploys) -> list[SlotRecord]:
    slots = DeployTable(fleet.home.world.store, fleet.home.world.clock).slots(fleet.home.world.store, APP, 1)
    return [slot for slot in slots if slot.kind is SlotKind.DESTROY]


async def test_a_release_that_crashes_is_taken_back_by_another_node_when_its_home_is_lost() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy(**BAD)
        await fleet.changes()
        await fleet.home.kill()
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        found = await fleet.ended(fleet.hosts.index(other))
        assert found.status in ("rolled_back", "failed")
        await fleet.again(fleet.home)
        assert await fleet.settled() == []


@pytest.mark.long(
    reason="seconds of a played fleet; a lost home, above, is the short form, and `make check` plays cuts"
)
async def test_a_home_that_is_cut_off_begins_nothing_more_and_follows_later() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        fleet.part(fleet.home)
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        found = await fleet.ended(fleet.hosts.index(other))
        assert found.status == "complete"
        mine = fleet.record(fleet.home)
        assert mine is not None and mine.ended_at is None
        fleet.heal()
        assert (await fleet.ended(0)).status == "complete"
        assert await fleet.settled() == []


async def test_a_run_begins_anew_behind_another_coordinator_though_its_first_term_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it adopted may be less far than its own steps are."""
    write_back, inherited = Coordinator.write_back, list[bool]()

    async def lost_at_first(coordinator: Coordinator, term: HeldTerm) -> None:
        inherited.append(term.inherited)
        if len(inherited) == 1:
            raise TermLost
        await write_back(coordinator, term)

    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        store, other = fleet.home.world.store, fleet.voters()[1].id
        table = DeployTable(store, fleet.home.world.clock)
        await store.write(lambda tx: table.change(tx, APP, 1, coordinator=other))
        monkeypatch.setattr(Coordinator, "write_back", lost_at_first)
        assert (await fleet.ended(0)).status == "complete"
        assert inherited[:2] == [True, True] and not any(inherited[2:])
        assert await fleet.settled() == []


async def test_a_request_to_a_deploy_holds_when_its_home_is_lost_at_once() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        await fleet.hosts[1].broker.call(ABORT_DEPLOY, params=LATEST, body=AbortDeployRequest())
        await fleet.home.kill(kept=0.0)
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        assert (await fleet.ended(fleet.hosts.index(other))).status == "rolled_back"
        await fleet.again(fleet.home)
        assert await fleet.settled() == []


@pytest.mark.long(
    reason="seconds of a played fleet; a request to a deploy whose home is lost, above, is the short form"
)
async def test_a_deploy_that_was_accepted_goes_on_when_its_home_is_lost_at_once() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.home.kill(kept=0.0)
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        assert (await fleet.ended(fleet.hosts.index(other))).status == "complete"
        await fleet.again(fleet.home)
        assert await fleet.settled() == []


async def test_words_to_a_deploy_reach_who_coordinates_it() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        fleet.part(fleet.home)
        await fleet.eventually(
            lambda: any(
                (record := fleet.record(host)) is not None and record.coordinator == host.id for host in fleet.hosts[1:]
            )
        )
        other = next(host for host in fleet.hosts if host not in fleet.voters())
        paused = await other.broker.call(PAUSE_DEPLOY, params=LATEST)
        assert paused.status == "paused"
        fleet.heal()
        await fleet.eventually(lambda: (record := fleet.record(fleet.home)) is not None and record.asked == "pause")
        await fleet.home.broker.call(RESUME_DEPLOY, params=LATEST)
        assert (await fleet.ended(0)).status == "complete"
        assert await fleet.settled() == []


async def test_without_a_majority_a_deploy_stands_still_and_goes_on_with_one() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        await fleet.changes()
        home, *others = fleet.voters()
        for host in others:
            await host.kill()
        await fleet.passes(30)
        record = fleet.record(home)
        assert record is not None and record.ended_at is None
        before = fleet.releases()
        await fleet.passes(120)
        assert fleet.releases() == before
        for host in others:
            await fleet.again(host)
        assert (await fleet.ended(0)).status == "complete"
        assert await fleet.settled() == []


async def test_a_late_update_of_an_earlier_coordinator_changes_nothing() -> None:
    async with played_deploys() as fleet:
        await fleet.deploy()
        fleet.late("update_machine", 300)
        await fleet.changes()
        await fleet.hosts[1].broker.call(ABORT_DEPLOY, params=LATEST, body=AbortDeployRequest())
        await fleet.ended(1)
        await fleet.passes(400)
        assert await fleet.settled() == []
        slots = {slot.state for slot in (await fleet.shown(0)).slots}
        assert SlotState.DONE.value not in slots


def _older(*numbers: int) -> DeployKit:
    """Nodes of these numbers have no path of deploys' registers yet."""

    def answers(handlers: Handlers, worker: SimWorker) -> None:
        async def refuse(call: Call[Any, Any, Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
            raise NotFound("there is no such path in this API, see /docs")

        if worker.parts.node.id in {f"{number:08x}" for number in numbers}:
            for route in (READ_REGISTER, GRANT_TERM, WRITE_REGISTER):
                handlers.wrap(route, refuse)

    return DeployKit(answers=answers)


async def test_a_node_of_an_older_version_is_no_voter() -> None:
    async with played_deploys(_older(3)) as fleet:
        begun = await fleet.deploy()
        assert begun.warnings == () and fleet.hosts[2] not in fleet.voters() and len(fleet.voters()) == 3
        assert (await fleet.ended(1)).status == "complete"


async def test_a_home_among_older_nodes_keeps_its_deploy_alone_and_says_so() -> None:
    async with played_deploys(_older(2, 3, 4)) as fleet:
        begun = await fleet.deploy()
        assert len(begun.warnings) == 1 and "00000003, 00000004 are of a version" in begun.warnings[0]
        assert fleet.voters() == []
        assert (await fleet.ended(0)).status == "complete"
