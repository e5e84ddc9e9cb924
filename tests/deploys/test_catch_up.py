"""What an app's home does by itself: for machines whose host was away, and for what a client left."""

from typing import Any

import pytest
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import LIST_MACHINES, UPDATE_MACHINE, Machine, MachineParams, UpdateMachineRequest
from hawker.api.contract.release import CREATE_RELEASE, LIST_RELEASES, CreateReleaseRequest, ListReleasesQuery, Release
from hawker.config import Guest, MachineConfig
from hawker.deploys.catch_up import SILENT_S, Adoption, CatchUp
from hawker.deploys.flows import table_of
from hawker.deploys.plan import RELEASE
from hawker.deploys.releases import ReleaseStatus
from hawker.errors import Unavailable
from hawker.machine import State
from hawker.record.app import RELEASES
from hawker.record.deploy import DEPLOY_SLOTS, SlotKind, SlotState, deploy_key, slot_key
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.store.contract import Tx
from hawker.up.wiring import catch_up_of
from tests.deploys.deploying import CHECKED, HELLO, WEB, deploy, ended, groups, machines

pytestmark = pytest.mark.anyio


class HostsAway:
    """The node's own caller, to which the hosts of some machines do not answer."""

    def __init__(self, worker: SimWorker) -> None:
        self._inner: Caller = worker.parts.deps.fleet.caller
        self.machines: set[str] = set()
        worker.parts.deps.fleet.meet(self)

    async def call(self, route: Any, **options: Any) -> Any:
        if getattr(options.get("params"), "machine_id", None) in self.machines:
            raise Unavailable("its host does not answer")
        found = await self._inner.call(route, **options)
        if route is LIST_MACHINES:
            found = replace(found, items=tuple(map(self._seen, found.items)))
        return found

    def _seen(self, machine: Machine) -> Machine:
        """As a broker tells of one whose host does not answer."""
        if machine.id not in self.machines:
            return machine
        known = machine.config.metadata if machine.config else None
        return replace(machine, host_status="unreachable", config=None, incomplete_config=MachineConfig(metadata=known))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def releases(worker: SimWorker) -> list[Release]:
    params, query = AppParams(app_name=APP), ListReleasesQuery(limit=25)
    return list((await worker.api.call(LIST_RELEASES, params=params, query=query)).releases)


async def test_a_group_whose_machines_are_all_away_gets_no_others(worker: SimWorker) -> None:
    await deploy(worker, WEB, counts={"web": 2, "jobs": 1})
    await ended(worker)
    away, there = HostsAway(worker), await machines(worker)
    away.machines = {each.id for each in there if "web" in ((each.config and each.config.metadata) or {}).values()}
    assert len(away.machines) == 2
    begun = await deploy(worker, WEB | {"env": {"A": "2"}})
    assert any("group 'web' gets no new machine" in each for each in begun.warnings)
    assert (await ended(worker)).status == "complete"
    assert {each.id for each in await machines(worker)} == {each.id for each in there}
    await deploy(worker, WEB, counts={"web": 3})
    assert len((await ended(worker)).slots) == 1, "two of three are away, and are there"
    narrowed = await deploy(worker, WEB, process_groups=("jobs",))
    assert not narrowed.warnings, "machines of other groups are none of its business, wherever they are"


async def test_a_machine_whose_host_was_away_is_brought_to_the_release_once_it_is_back(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    away, catch_up = HostsAway(worker), catch_up_of(worker.parts)
    late, other = sorted(await machines(worker), key=lambda each: each.id)
    away.machines = {late.id}
    begun = await deploy(worker, WEB | {"env": {"A": "2"}})
    assert any(late.id in each for each in begun.warnings) and (await ended(worker)).status == "complete"
    await catch_up.look()
    assert len(await releases(worker)) == 2
    away.machines = set()
    await catch_up.look()
    found = await ended(worker)
    assert (found.version, found.status, [slot.machine_id for slot in found.slots]) == (3, "complete", [late.id])
    after = {each.id: each for each in await machines(worker)}
    assert all(each.config and each.config.env and each.config.env["A"] == "2" for each in after.values())
    assert after[other.id].version != other.version
    await catch_up.look()
    assert len(await releases(worker)) == 3


async def test_a_machine_that_is_still_away_is_not_forgotten_when_another_one_is_back(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    away, catch_up = HostsAway(worker), catch_up_of(worker.parts)
    first, second = (each.id for each in await machines(worker))
    away.machines = {first, second}
    await deploy(worker, WEB | {"env": {"A": "2"}}, update_only=True)
    await ended(worker)
    for back in (first, second):
        away.machines.discard(back)
        await catch_up.look()
        assert [slot.machine_id for slot in (await ended(worker)).slots] == [back]


@pytest.mark.parametrize("narrowed", ["only_machines", "exclude_machines", "only_regions", "exclude_regions"])
async def test_a_machine_that_a_narrowed_deploy_left_out_stays_as_it_is_once_its_host_is_back(
    worker: SimWorker, narrowed: str
) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    away, catch_up = HostsAway(worker), catch_up_of(worker.parts)
    kept, other = await machines(worker)
    said = {
        "only_machines": other.id,
        "exclude_machines": kept.id,
        "only_regions": "elsewhere",
        "exclude_regions": kept.region,
    }
    away.machines = {kept.id}
    begun = await deploy(worker, WEB | {"env": {"A": "2"}}, **{narrowed: (said[narrowed],)})
    assert not any(kept.id in each for each in begun.warnings) and (await ended(worker)).status == "complete"
    away.machines = set()
    await catch_up.look()
    assert len(await releases(worker)) == 2
    assert kept.version in {each.version for each in await machines(worker)}


async def test_a_blue_machine_whose_host_was_away_goes_once_it_is_back(worker: SimWorker) -> None:
    patient = CHECKED | {"deploy": {"wait_timeout": "30s"}}
    await deploy(worker, patient)
    await ended(worker)
    away, catch_up = HostsAway(worker), catch_up_of(worker.parts)
    (blue,) = await machines(worker)
    await deploy(worker, patient, strategy="bluegreen")
    away.machines = {blue.id}
    assert (await ended(worker)).status == "complete"
    away.machines = set()
    assert blue.id in {each.id for each in await machines(worker)}
    await catch_up.look()
    await worker.parts.deps.clock.sleep(10)
    assert blue.id not in {each.id for each in await machines(worker)}


async def unanswered(worker: SimWorker, memory_mib: int) -> str:
    """A deploy that failed amid the order of one machine more; the key of that slot."""
    await deploy(worker)
    await ended(worker)
    found = await deploy(worker, {"env": {"A": "2"}})
    await ended(worker)
    deps, version = worker.parts.deps, found.version

    def apply(tx: Tx) -> None:
        slot = table_of(deps).slots(tx, APP, version)[0]
        assert slot.config is not None
        config = replace(slot.config, guest=Guest(memory_mb=memory_mib))
        lost = replace(slot, number=7, kind=SlotKind.CREATE, state=SlotState.LEFT, machine="", config=config)
        tx.put(DEPLOY_SLOTS, slot_key(APP, version, 7), lost)
        key = deploy_key(APP, version)
        release = tx.get(RELEASES, key)
        assert release is not None
        tx.put(RELEASES, key, replace(release, status=ReleaseStatus.FAILED))

    await deps.store.write(apply)
    return slot_key(APP, version, 7)


@pytest.mark.parametrize("memory_mib", [256, 1 << 22])
async def test_an_order_that_was_never_answered_leaves_no_machine_and_is_asked_for_once(
    worker: SimWorker, memory_mib: int
) -> None:
    """Whether it can be filled now or there is no room for it."""
    key = await unanswered(worker, memory_mib)
    before, catch_up = {each.id for each in await machines(worker)}, catch_up_of(worker.parts)
    await catch_up.look()
    await worker.parts.deps.clock.sleep(10)
    slot = worker.parts.deps.store.get(DEPLOY_SLOTS, key)
    assert slot is not None and slot.state is SlotState.RETURNED
    assert bool(slot.machine) is (memory_mib == 256)
    assert {each.id for each in await machines(worker)} == before


async def driven(worker: SimWorker, *, changed: bool) -> None:
    """A client made a release by itself, changed one machine or none, and was killed."""
    params = AppParams(app_name=APP)
    body = CreateReleaseRequest(image=HELLO, strategy="rolling", definition=WEB | {"env": {"A": "2"}})
    made = await worker.api.call(CREATE_RELEASE, params=params, body=body)
    if changed:
        first = (await machines(worker))[0]
        assert first.config is not None
        config = replace(first.config, metadata={**(first.config.metadata or {}), RELEASE: str(made.version)})
        target = MachineParams(app_name=APP, machine_id=first.id)
        await worker.api.call(UPDATE_MACHINE, params=target, body=UpdateMachineRequest(config=config))
        await worker.wait(first.id, "started")


@pytest.mark.parametrize(
    ("adopt", "versions", "env"), [("finish", {"3"}, "2"), ("back", {"3"}, None), ("off", {"1", "2"}, None)]
)
async def test_a_deploy_whose_client_was_killed_is_finished_taken_back_or_left(
    worker: SimWorker, adopt: Adoption, versions: set[str], env: str | None
) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    await driven(worker, changed=True)
    catch_up = CatchUp(table_of(worker.parts.deps), catch_up_of(worker.parts).intake, adopt)
    await catch_up.look()
    assert len(await releases(worker)) == 2
    await worker.parts.deps.clock.sleep(SILENT_S + 1)
    await catch_up.look()
    if adopt != "off":
        assert (await ended(worker, 3)).status == "complete"
    found = await machines(worker)
    assert {version for _, version, _ in groups(found)} == versions
    assert {(each.config.env or {}).get("A") for each in found if each.config} == {env}
    assert {each.state for each in found} == {State.STARTED}


async def test_a_release_that_is_brought_back_has_the_image_that_its_tag_meant_then(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    moved = worker.store.get(RELEASES, deploy_key(APP, 1))
    assert moved is not None
    await worker.store.write(lambda tx: tx.put(RELEASES, deploy_key(APP, 1), replace(moved, image="hawker/moved")))
    await driven(worker, changed=True)
    await worker.parts.deps.clock.sleep(SILENT_S + 1)
    await CatchUp(table_of(worker.parts.deps), catch_up_of(worker.parts).intake, "back").look()
    assert (await ended(worker, 3)).status == "complete"
    assert {each.config.image for each in await machines(worker) if each.config} == {HELLO}


async def test_a_client_that_holds_a_lease_is_there(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    await driven(worker, changed=True)
    await worker.parts.deps.clock.sleep(SILENT_S + 1)
    lease = await worker.lease((await machines(worker))[1].id, 300)
    catch_up = catch_up_of(worker.parts)
    await catch_up.look()
    assert len(await releases(worker)) == 2
    await worker.release((await machines(worker))[1].id, lease.data.nonce)
    await worker.parts.deps.clock.sleep(SILENT_S)
    await catch_up.look()
    assert (await ended(worker, 3)).status == "complete"


async def test_a_client_that_had_changed_nothing_leaves_a_release_that_is_interrupted(worker: SimWorker) -> None:
    await deploy(worker, WEB)
    await ended(worker)
    await driven(worker, changed=False)
    await worker.parts.deps.clock.sleep(SILENT_S + 1)
    await catch_up_of(worker.parts).look()
    assert [each.status for each in await releases(worker)] == ["interrupted", "complete"]
