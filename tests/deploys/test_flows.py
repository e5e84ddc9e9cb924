"""Deploys on a whole worker, whose time is simulated: what becomes of an app's machines."""

from collections.abc import Collection, Iterable
from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.deploy import GET_DEPLOY, DeployParams
from hawker.api.contract.machine import Machine, MachineParams
from hawker.api.contract.machine_operation import CORDON_MACHINE, START_MACHINE, UNCORDON_MACHINE
from hawker.deploys import flows
from hawker.deploys.moves import Moves
from hawker.deploys.term_fence import GUARDED
from hawker.errors import HawkerError, MoveUnderWay, NoRoom, Unavailable, Unprocessable
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.deploy import DEPLOY_SLOTS, DEPLOYS, DeployWish, SlotRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.deploys.deploying import BAD, CHECKED, WEB, abort, deploy, ended, groups, machines

pytestmark = pytest.mark.anyio


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


SURGE = {"hawker": {"deploy": {"surge": True, "smoke": "2s"}}}


async def test_a_group_of_one_machine_has_a_second_one_while_that_changes(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    begun = await deploy(worker, SURGE)
    assert [(slot.kind, slot.machine_id) for slot in begun.slots] == [("canary", ""), ("update", before.id)]
    assert begun.warnings == ()
    fewest = 2
    while (shown := await worker.api.call(GET_DEPLOY, params=DeployParams(app_name=APP, version="2"))).ended_at is None:
        serving = [each for each in await machines(worker) if each.state is State.STARTED and not each.cordoned]
        fewest = min(fewest, len(serving))
        await worker.parts.deps.clock.sleep(0.05)
    assert shown.status == "complete" and fewest == 1
    (after,) = await machines(worker)
    assert after.id == before.id and groups([after]) == [("app", "2", State.STARTED)]


async def test_a_second_machine_goes_when_its_deploy_is_taken_back(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, SURGE | BAD)
    assert (await ended(worker)).status == "rolled_back"
    (after,) = await machines(worker)
    assert (after.id, after.version) == (before.id, before.version)


async def test_groups_of_two_or_with_volumes_get_no_second_machine(worker: SimWorker) -> None:
    await deploy(worker, WEB | {"services": [{"internal_port": 8080, "processes": ["web"]}]})
    await ended(worker)
    begun = await deploy(worker, WEB | SURGE, dry_run=True)
    kinds = [(slot.kind, slot.group) for slot in begun.slots]
    assert kinds.count(("canary", "jobs")) == 1 and ("canary", "web") not in kinds


async def test_bluegreen_replaces_all_machines_and_leaves_as_many(worker: SimWorker) -> None:
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    begun = await deploy(worker, CHECKED, strategy="bluegreen")
    assert [slot.kind for slot in begun.slots] == ["create", "destroy"]
    assert (await ended(worker)).status == "complete"
    (green,) = await machines(worker)
    assert green.id != blue.id and not green.cordoned and green.state is State.STARTED


async def test_blue_machines_are_kept_at_rest_for_as_long_as_the_file_says(worker: SimWorker) -> None:
    kept = CHECKED | {"hawker": {"deploy": {"keep_blue": "5m"}}}
    await deploy(worker, kept)
    await ended(worker)
    (blue,) = await machines(worker)
    await deploy(worker, kept, strategy="bluegreen")
    await worker.parts.deps.clock.sleep(120)
    states = {each.id: (each.state, each.cordoned) for each in await machines(worker)}
    assert states.pop(blue.id) == (State.STOPPED, True) and list(states.values()) == [(State.STARTED, False)]
    assert (await ended(worker)).status == "complete"
    (green,) = await machines(worker)
    assert green.id != blue.id and worker.parts.deps.clock.monotonic() >= 300


async def test_an_abort_while_blue_machines_are_kept_starts_them_again(worker: SimWorker) -> None:
    kept = CHECKED | {"hawker": {"deploy": {"keep_blue": "5m"}}}
    await deploy(worker, kept)
    await ended(worker)
    (blue,) = await machines(worker)
    await deploy(worker, kept, strategy="bluegreen")
    await worker.parts.deps.clock.sleep(120)
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    (left,) = await machines(worker)
    assert (left.id, left.version, left.state, left.cordoned) == (blue.id, blue.version, State.STARTED, False)


PAIR = {"deploy": {"wait_timeout": "20s"}, "hawker": {"deploy": {"keep_blue": "5m", "smoke": "1s", "smoke_rest": "1s"}}}
SHORT = CHECKED | {"deploy": PAIR["deploy"]}


class _Refusing:
    """A gateway that cannot make one call for some machines: there is no room, or another lease than the deploy's."""

    def __init__(self, inner: Caller, route: Any, machines: Collection[str], error: HawkerError) -> None:
        self._inner, self._route, self._machines, self._error = inner, route, machines, error

    async def call(self, route: Any, **options: Any) -> Any:
        if route is self._route and options["params"].machine_id in self._machines:
            raise self._error
        return await self._inner.call(route, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def refuses(worker: SimWorker, route: Any, found: Iterable[Machine], error: HawkerError | None = None) -> None:
    fleet = worker.parts.deps.fleet
    error = error or NoRoom("no room", scope="host", shortfall={})
    fleet.meet(cast("Caller", _Refusing(fleet.caller, route, [each.id for each in found], error)))


def says_after(route: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person aborts a deploy as soon as it has made all calls of this route."""
    each = Moves.each

    async def then_a_word(deploying: Moves, slots: Iterable[SlotRecord], called: Any) -> None:
        await each(deploying, slots, called)
        if called is route:
            await deploying.table.ask(APP, deploying.version, DeployWish.ABORT, lambda record: None)

    monkeypatch.setattr(Moves, "each", then_a_word)


async def resting_pair(worker: SimWorker) -> list[Machine]:
    """Two blue machines, as they were, which rest since a while while two green ones serve."""
    await deploy(worker, CHECKED | PAIR, counts={"app": 2})
    await ended(worker)
    blue = await machines(worker)
    await deploy(worker, CHECKED | PAIR, strategy="bluegreen")
    await worker.parts.deps.clock.sleep(120)
    return blue


def shown(found: Iterable[Machine]) -> dict[str, tuple[State, bool]]:
    return {each.id: (each.state, each.cordoned) for each in found}


async def test_a_blue_machine_that_does_not_wake_keeps_no_other_from_it(worker: SimWorker) -> None:
    stuck, other = await resting_pair(worker)
    refuses(worker, START_MACHINE, [stuck])
    await abort(worker)
    found = await ended(worker)
    assert found.status == "failed" and found.error.endswith(f"; not taken back: {stuck.id}")
    assert {slot.machine_id: slot.state for slot in found.slots}[stuck.id] == "left"
    assert shown(await machines(worker)) == {stuck.id: (State.STOPPED, True), other.id: (State.STARTED, False)}


async def test_a_blue_machine_that_does_not_come_into_routing_keeps_no_other_from_it(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `keep_blue`: a person ends it while blue machines leave routing."""
    await deploy(worker, SHORT, counts={"app": 2})
    await ended(worker)
    stuck, other = await machines(worker)
    refuses(worker, UNCORDON_MACHINE, [stuck])
    says_after(CORDON_MACHINE, monkeypatch)
    await deploy(worker, SHORT, strategy="bluegreen")
    found = await ended(worker)
    assert found.status == "failed" and found.error.endswith(f"; not taken back: {stuck.id}")
    assert shown(await machines(worker)) == {stuck.id: (State.STARTED, True), other.id: (State.STARTED, False)}


async def test_green_machines_serve_on_where_no_blue_one_wakes(worker: SimWorker) -> None:
    blue = await resting_pair(worker)
    refuses(worker, START_MACHINE, blue)
    await abort(worker)
    found = await ended(worker)
    assert found.status == "failed" and {slot.state for slot in found.slots} == {"left"}
    there = shown(await machines(worker))
    assert [there.pop(each.id) for each in blue] == [(State.STOPPED, True)] * 2
    assert list(there.values()) == [(State.STARTED, False)] * 2


async def test_a_blue_machine_that_was_destroyed_meanwhile_is_not_waited_for(worker: SimWorker) -> None:
    lost, other = await resting_pair(worker)
    await worker.destroy(lost.id, force=True)
    await worker.reaches(lost.id, State.DESTROYED)
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    assert shown(await machines(worker)) == {other.id: (State.STARTED, False)}


async def test_blue_machines_that_still_drain_are_started_once_they_have_stopped(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    slow = {"kill_timeout": "15s"}
    await deploy(worker, CHECKED | PAIR | slow, counts={"app": 2})
    await ended(worker)
    blue = await machines(worker)
    stall.host.stubborn.update(MachineId(each.id) for each in blue)
    await deploy(worker, CHECKED | PAIR, strategy="bluegreen")
    clock = worker.parts.deps.clock
    await eventually(clock, lambda: all(worker.record(each.id).state is State.STOPPING for each in blue), 600)
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    assert shown(await machines(worker)) == {each.id: (State.STARTED, False) for each in blue}


class _Noting:
    """A gateway that tells which routes were called in a deploy's term."""

    def __init__(self, inner: Caller, routes: set[str]) -> None:
        self._inner, self._routes = inner, routes

    async def call(self, route: Any, **options: Any) -> Any:
        if "deploy_term" in options:
            self._routes.add(route.name)
        return await self._inner.call(route, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_every_change_of_a_machine_that_a_deploy_makes_in_its_term_is_guarded(worker: SimWorker) -> None:
    fleet, routes = worker.parts.deps.fleet, set[str]()
    fleet.meet(cast("Caller", _Noting(fleet.caller, routes)))
    await deploy(worker)
    await ended(worker)
    await deploy(worker)
    await ended(worker)
    await resting_pair(worker)
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    assert routes == {route.name for route in GUARDED}


async def test_a_blue_machine_that_ran_outside_of_routing_does_so_again(worker: SimWorker) -> None:
    await deploy(worker, CHECKED | PAIR)
    await ended(worker)
    (blue,) = await machines(worker)
    await worker.api.call(CORDON_MACHINE, params=MachineParams(app_name=APP, machine_id=blue.id))
    await deploy(worker, CHECKED | PAIR, strategy="bluegreen")
    await worker.parts.deps.clock.sleep(120)
    await abort(worker)
    assert (await ended(worker)).status == "rolled_back"
    assert shown(await machines(worker)) == {blue.id: (State.STARTED, True)}


async def test_bluegreen_that_fails_leaves_the_blue_machines_as_they_were(worker: SimWorker) -> None:
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    await deploy(worker, CHECKED | BAD, strategy="bluegreen")
    assert (await ended(worker)).status == "rolled_back"
    (left,) = await machines(worker)
    assert (left.id, left.version, left.cordoned) == (blue.id, blue.version, False)


async def test_a_blue_machine_that_was_out_of_routing_stays_so_when_bluegreen_goes_back(worker: SimWorker) -> None:
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    await worker.api.call(CORDON_MACHINE, params=MachineParams(app_name=APP, machine_id=blue.id))
    await deploy(worker, CHECKED | BAD, strategy="bluegreen")
    assert (await ended(worker)).status == "rolled_back"
    (left,) = await machines(worker)
    assert (left.id, left.cordoned) == (blue.id, True)


async def blue_of(worker: SimWorker) -> Machine:
    await deploy(worker, SHORT)
    await ended(worker)
    (blue,) = await machines(worker)
    return blue


@pytest.mark.parametrize("error", [None, Unavailable("its host does not answer")], ids=["leased", "away"])
async def test_a_blue_machine_that_was_not_touched_is_not_left(worker: SimWorker, error: HawkerError | None) -> None:
    """The green one does not prove itself, so the old one never left routing."""
    blue = await blue_of(worker)
    if error is None:
        await worker.lease(blue.id, 3600)
    else:
        refuses(worker, UNCORDON_MACHINE, [blue], error)
    await deploy(worker, SHORT | BAD, strategy="bluegreen")
    found = await ended(worker)
    assert found.status == "rolled_back" and "not taken back" not in found.error
    assert {slot.machine_id: slot.state for slot in found.slots}[blue.id] == "waiting"
    assert shown(await machines(worker)) == {blue.id: (State.STARTED, False)}


@pytest.mark.parametrize("kept", ["by an abort", "by a lease", "by a move"])
async def test_green_machines_go_where_a_blue_one_that_cannot_be_changed_serves_on(
    worker: SimWorker, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All green ones are in routing, and the only old one of the group is there still."""
    blue = await blue_of(worker)
    if kept == "by a move":
        refuses(worker, UNCORDON_MACHINE, [blue], MoveUnderWay("it is on its way"))
    else:
        await worker.lease(blue.id, 3600)
    if kept != "by a lease":
        says_after(UNCORDON_MACHINE, monkeypatch)
    await deploy(worker, SHORT, strategy="bluegreen")
    assert (await ended(worker)).status == "rolled_back"
    assert shown(await machines(worker)) == {blue.id: (State.STARTED, False)}


async def test_green_machines_serve_on_where_a_lease_keeps_the_blue_one_out_of_routing(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = await blue_of(worker)
    says_after(CORDON_MACHINE, monkeypatch)
    each = Moves.each

    async def then_a_lease(deploying: Moves, slots: Iterable[SlotRecord], route: Any) -> None:
        await each(deploying, slots, route)
        if route is CORDON_MACHINE:
            await worker.lease(blue.id, 3600)

    monkeypatch.setattr(Moves, "each", then_a_lease)
    await deploy(worker, SHORT, strategy="bluegreen")
    found = await ended(worker)
    assert found.status == "failed" and {slot.state for slot in found.slots} == {"left"}
    assert sorted(shown(await machines(worker)).values()) == [(State.STARTED, False), (State.STARTED, True)]


@pytest.mark.parametrize(("wish", "status"), [(DeployWish.ABORT, "rolled_back"), (DeployWish.STOP, "interrupted")])
async def test_a_word_that_comes_just_before_old_machines_go_is_heeded(
    worker: SimWorker, wish: DeployWish, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once the step before has ended, where nothing listens."""
    await deploy(worker, CHECKED)
    await ended(worker)
    (blue,) = await machines(worker)
    each = Moves.each

    async def then_a_word(deploying: Moves, slots: Iterable[SlotRecord], route: Any) -> None:
        await each(deploying, slots, route)
        if route is CORDON_MACHINE:
            await deploying.table.ask(APP, deploying.version, wish, lambda record: None)

    monkeypatch.setattr(flows, "_unless_stopped", lambda deploy, do: do(deploy))
    monkeypatch.setattr(Moves, "each", then_a_word)
    await deploy(worker, CHECKED, strategy="bluegreen")
    assert (await ended(worker)).status == status
    assert blue.id in [each.id for each in await machines(worker)]


async def test_a_canary_that_fails_is_the_only_machine_that_was_touched(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    await deploy(worker, BAD, strategy="canary")
    found = await ended(worker)
    assert [(slot.kind, slot.state) for slot in found.slots] == [("canary", "returned"), ("update", "waiting")]
    (after,) = await machines(worker)
    assert after.version == before.version


async def test_a_canary_that_was_destroyed_and_not_noted_has_ended(
    worker: SimWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What destroys it dies between the two, and the step begins again."""
    await deploy(worker)
    await ended(worker)
    (before,) = await machines(worker)
    delete, deleted = Moves.delete, list[str]()

    async def then_dies(deploying: Moves, slot: SlotRecord) -> None:
        await delete(deploying, slot)
        deleted.append(slot.machine)
        if len(deleted) == 1:
            raise RuntimeError("it dies")

    monkeypatch.setattr(Moves, "delete", then_dies)
    await deploy(worker, strategy="canary")
    found = await ended(worker)
    assert found.status == "complete" and [slot.state for slot in found.slots] == ["done", "done"]
    assert [each.id for each in await machines(worker)] == [before.id]


async def test_immediate_waits_for_no_gate_and_takes_nothing_back(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    await deploy(worker, BAD, strategy="immediate")
    assert (await ended(worker)).status == "complete"


async def test_records_of_an_app_go_with_it(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    for machine in await machines(worker):
        await worker.destroy(machine.id, force=True)
        await worker.reaches(machine.id, State.DESTROYED)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert worker.store.count(DEPLOYS) == worker.store.count(DEPLOY_SLOTS) == 0


async def test_counts_make_and_destroy_machines_and_touch_no_other(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    before = {each.id: each.version for each in await machines(worker)}
    await deploy(worker, WEB, counts={"web": 3})
    assert (await ended(worker)).status == "complete"
    found = {each.id: each.version for each in await machines(worker)}
    assert len(found) == 4 and before.items() <= found.items()
    await deploy(worker, WEB, counts={"web": 1, "jobs": 0})
    assert (await ended(worker)).status == "complete"
    assert [group for group, _, _ in groups(await machines(worker))] == ["web"]
    with pytest.raises(Unprocessable, match="no process group 'nobody'; it has"):
        await deploy(worker, WEB, counts={"nobody": 1})
    with pytest.raises(Unprocessable, match="cannot have -1 machines"):
        await deploy(worker, WEB, counts={"web": -1})


async def test_machines_that_are_too_many_and_fail_go_again(worker: SimWorker) -> None:
    await deploy(worker)
    await ended(worker)
    await deploy(worker, BAD, counts={"app": 3})
    assert (await ended(worker)).status == "rolled_back"
    assert groups(await machines(worker)) == [("app", "1", State.STARTED)]
