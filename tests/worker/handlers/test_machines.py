import re

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.lease import CREATE_LEASE
from hawker.api.contract.machine import (
    LIST_EVENTS,
    LIST_MACHINES,
    LIST_VERSIONS,
    ListEventsQuery,
    ListMachinesQuery,
    Machine,
)
from hawker.api.route import Page
from hawker.errors import BadRequest, NotFound, Unprocessable
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def _list(worker: SimWorker, **query: object) -> Page[Machine]:
    wanted = ListMachinesQuery(**query)  # type: ignore[arg-type]
    return await worker.api.call(LIST_MACHINES, params=AppParams(app_name=APP), query=wanted)


async def test_a_machine_is_shown_as_the_contract_says(worker: SimWorker) -> None:
    machine = await worker.create(order={"name": "web"}, env={"A": "1"})
    shown = await worker.get(machine.id)
    assert re.fullmatch(r"[0-9a-f]{14}", shown.id) and len(shown.version) == 26
    assert (shown.name, shown.region, shown.host_status) == ("web", "local", "ok")
    assert shown.instance_id == shown.version and shown.nonce is None and shown.lease is None
    assert shown.config is not None and shown.config.env == {"A": "1"}
    assert shown.config.guest is not None and shown.config.guest.memory_mb == 256
    assert shown.image_ref.repository == "hawker/hello" and shown.image_ref.digest.startswith("sha256:")


async def test_a_lease_can_be_taken_with_the_machine(worker: SimWorker) -> None:
    machine = await worker.create(order={"lease_ttl": 30})
    assert machine.nonce is not None
    assert (await worker.get(machine.id)).nonce is None, "or clients believe that they hold it"
    held = (await worker.get(machine.id, include_leases=True)).lease
    assert held is not None and held.owner == "ann"
    await worker.reaches(machine.id, State.STARTED)
    updated = await worker.update(machine.id, nonce=machine.nonce, order={"lease_ttl": 30})
    assert updated.nonce == machine.nonce


async def test_what_a_config_may_not_have_is_refused_before_anything_is_made(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="cache_drive"):
        await worker.create(cache_drive={"size_mb": 64})
    with pytest.raises(BadRequest):
        await worker.create(image="oci:/no/such/directory")
    assert worker.machines() == []


async def test_an_app_that_does_not_exist_is_not_found(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.create(app="nosuch")


async def test_name_and_region_cannot_be_changed(worker: SimWorker) -> None:
    machine_id = await worker.started()
    with pytest.raises(Unprocessable, match="cannot be changed"):
        await worker.update(machine_id, order={"name": "other"})
    await worker.update(machine_id, order={"name": worker.record(machine_id).name, "region": "local"})


async def test_a_list_can_be_narrowed_by_state_region_and_metadata(worker: SimWorker) -> None:
    web = await worker.started(metadata={"role": "web"})
    job = await worker.stopped(metadata={"role": "job"})
    assert {machine.id for machine in (await _list(worker)).items} == {web, job}
    assert [machine.id for machine in (await _list(worker, state=(State.STOPPED,))).items] == [job]
    assert [machine.id for machine in (await _list(worker, metadata={"role": "web"})).items] == [web]
    assert (await _list(worker, region="ams")).items == ()


async def test_destroyed_machines_are_listed_when_asked_for(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    assert (await _list(worker)).items == ()
    (gone,) = (await _list(worker, include_deleted=True)).items
    assert (gone.id, gone.state) == (machine_id, State.DESTROYED)


async def test_a_list_comes_in_pages(worker: SimWorker) -> None:
    made = sorted([await worker.stopped() for _ in range(5)])
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = await _list(worker, limit=2, cursor=cursor)
        seen += [machine.id for machine in page.items]
        cursor = page.next_cursor
    assert seen == made and cursor is None


async def test_a_summary_leaves_out_config_events_and_checks(worker: SimWorker) -> None:
    await worker.stopped()
    (short,) = (await _list(worker, summary=True)).items
    assert short.config is None and short.events == () == short.checks


async def test_leases_are_listed_when_asked_for(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    await worker.api.call(CREATE_LEASE, params=params(machine_id))
    (plain,) = (await _list(worker)).items
    (leased,) = (await _list(worker, include_leases=True)).items
    assert plain.lease is None and leased.lease is not None


async def test_events_come_newest_first_and_limited(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(init={"exec": ["false"]}, restart={"policy": "always"})
    await stall.clock.sleep(1800)
    for asked, given in ((3, 3), (50, 50), (500, 50)):
        events = await worker.api.call(LIST_EVENTS, params=params(machine.id), query=ListEventsQuery(limit=asked))
        assert len(events) == given
        assert [event.id for event in events] == sorted((event.id for event in events), reverse=True)
    assert len((await worker.get(machine.id)).events) == 20
    with pytest.raises(BadRequest, match="limit"):
        await worker.api.call(LIST_EVENTS, params=params(machine.id), query=ListEventsQuery(limit=0))


async def test_versions_are_kept_newest_first(worker: SimWorker) -> None:
    machine_id = await worker.started(env={"A": "1"})
    await worker.update(machine_id, env={"A": "2"})
    versions = await worker.api.call(LIST_VERSIONS, params=params(machine_id))
    assert [version.user_config.env for version in versions] == [{"A": "2"}, {"A": "1"}]
    with pytest.raises(NotFound):
        await worker.get(machine_id, version="01JNOSUCHVERSION")
