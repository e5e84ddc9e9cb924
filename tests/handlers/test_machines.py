import re
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.machine import (
    DELETE_METADATA,
    GET_METADATA,
    LIST_EVENTS,
    LIST_MACHINES,
    LIST_METADATA,
    LIST_VERSIONS,
    UPDATE_METADATA,
    ListEventsQuery,
    ListMachinesQuery,
    Machine,
    MetadataKeyParams,
    UpdateMetadataRequest,
)
from hawker.api.contract.machine_operation import CREATE_LEASE
from hawker.api.contract.run import MACHINE_HISTORY, HistoryParams, Kept, MachineHistory
from hawker.api.grant import Everything
from hawker.api.route import Call, NoQuery, Page
from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.errors import BadRequest, NotFound, Unavailable, Unprocessable, WrongState
from hawker.handlers.assembly import worker_handlers
from hawker.handlers.machines import MachineFinder, target_of
from hawker.ids import AppName, MachineId
from hawker.machine import State
from hawker.permission import Attempt
from hawker.record.machine import DESTROYED, Previous
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Tx

pytestmark = pytest.mark.anyio


async def test_the_app_is_missed_before_the_machine(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    machines = MachineFinder(worker.parts.deps.store, worker.parts.deps.table, worker.parts.apps)
    assert machines.find(params(machine_id)).id == machine_id
    with pytest.raises(NotFound, match="machine not found"):
        machines.find(params("00000000000000"))
    with pytest.raises(NotFound, match="app not found"):
        machines.find(params(machine_id, "nosuch"))


def test_a_target_carries_the_nonce() -> None:
    assert target_of(params("1"), "nonce").nonce == "nonce"


async def _list(worker: SimWorker, **query: object) -> Page[Machine]:
    wanted = ListMachinesQuery(**query)  # type: ignore[arg-type]
    return await worker.api.call(LIST_MACHINES, params=AppParams(app_name=APP), query=wanted)


async def test_a_machine_is_shown_as_the_contract_says(worker: SimWorker) -> None:
    machine = await worker.create(order={"name": "web"}, env={"A": "1"})
    shown = await worker.get(machine.id)
    assert re.fullmatch(r"[0-9a-f]{14}", shown.id) and len(shown.version) == 26
    assert (shown.name, shown.region, shown.host_status) == ("web", "local", "ok")
    assert shown.host == worker.parts.node.id
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


async def test_a_config_with_a_forbidden_field_is_refused_before_anything_is_made(worker: SimWorker) -> None:
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


@pytest.fixture
def stall(stall: MemoryWorld, tmp_path: Path) -> MemoryWorld:
    stall.archive = Archive(DirectoryBackend(tmp_path / "kept"), tmp_path / "staging")
    return stall


async def _history(worker: SimWorker, machine_id: str) -> MachineHistory:
    return await worker.api.call(MACHINE_HISTORY, params=HistoryParams(machine_id=machine_id))


async def _destroyed(worker: SimWorker) -> str:
    machine_id = await worker.started(env={"KEY": "secret"})
    await worker.update(machine_id, env={"KEY": "other"})
    await worker.reaches(machine_id, State.STARTED)
    await worker.destroy(machine_id, force=True)
    await worker.reaches(machine_id, State.DESTROYED)
    return machine_id


async def _forgotten(worker: SimWorker, stall: MemoryWorld) -> str:
    machine_id = await _destroyed(worker)
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 3 * stall.settings.reconcile_every_s)
    assert worker.parts.runner.list() == []
    return machine_id


async def test_a_machine_that_runs_has_a_history(worker: SimWorker) -> None:
    machine_id = await worker.started()
    told = await _history(worker, machine_id)
    assert (told.id, told.app, told.state, told.kept) == (machine_id, APP, "started", Kept.NODE)
    assert [(event.type, event.status) for event in told.events] == [("launch", "created"), ("start", "started")]
    (run,) = told.runs
    assert (run.flow, run.state, [step.name for step in run.steps]) == (
        "create",
        "done",
        ["image", "rootfs", "volume", "network", "launch"],
    )


async def test_an_archived_machine_is_told_as_it_was_while_it_was_here(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _destroyed(worker)
    here = await _history(worker, machine_id)
    assert here.kept is Kept.NODE and here.state == "destroyed"
    assert [version.user_config.env for version in here.versions] == [{"KEY": "secret"}, {"KEY": "other"}]
    assert [event.status for event in here.events if event.request and event.request.exit_event] == ["stopped"] * 2
    await stall.clock.sleep(stall.settings.destroyed_kept_s + 3 * stall.settings.reconcile_every_s)
    there = await _history(worker, machine_id)
    assert there.kept is Kept.ARCHIVE
    assert (there.events, there.versions, there.runs) == (here.events, here.versions, here.runs)
    assert (there.name, there.updated_at, there.image_digest) == (here.name, here.updated_at, here.image_digest)


async def test_the_app_may_be_gone(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert (await _history(worker, machine_id)).app == APP


@pytest.mark.parametrize("machine_id", ["00000000000000", "no id", "..%2F..%2Fetc", ""])
async def test_an_unknown_machine_is_not_found(worker: SimWorker, machine_id: str) -> None:
    with pytest.raises(NotFound):
        await _history(worker, machine_id)


async def test_without_an_archive_what_was_dropped_is_not_found(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    stall.archive = None
    async with stall.open() as later:
        with pytest.raises(NotFound):
            await _history(later, machine_id)


async def test_a_damaged_archive_says_which_file_it_is(worker: SimWorker, stall: MemoryWorld, tmp_path: Path) -> None:
    machine_id = await _forgotten(worker, stall)
    (path,) = (tmp_path / "kept").glob("*/*.zst")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArchiveDamaged, match=f"{machine_id}.sqlite.zst cannot be read"):
        await _history(worker, machine_id)


class Silent(DirectoryBackend):
    """Never answers."""

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        await anyio.sleep_forever()
        raise AssertionError


async def test_an_archive_that_does_not_answer_is_not_waited_for_long(stall: MemoryWorld, tmp_path: Path) -> None:
    stall.archive = Archive(Silent(tmp_path / "kept"), tmp_path / "staging")
    async with stall.open() as worker:
        with pytest.raises(Unavailable, match="did not answer within 60 s"):
            await _history(worker, "00000000000000")
    assert list((tmp_path / "staging").iterdir()) == []


class Reader(Everything):
    """Of one app; notes what it was asked."""

    def __init__(self, app: str) -> None:
        super().__init__("ann")
        self._app = app

    def permits(self, attempt: Attempt) -> bool:
        return attempt.app == self._app


async def _as(worker: SimWorker, grant: Reader, machine_id: str) -> MachineHistory:
    params = HistoryParams(machine_id=machine_id)
    call = Call(params=params, query=NoQuery(), body=None, grant=grant, request_id="")
    answer: MachineHistory = await worker_handlers(worker.parts).of(MACHINE_HISTORY)(call)
    return answer


async def test_a_token_that_may_not_read_the_app_does_not_hear_of_it(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    assert (await _as(worker, Reader(APP), machine_id)).id == machine_id
    with pytest.raises(NotFound):
        await _as(worker, Reader("other"), machine_id)


async def test_a_later_app_of_the_same_name_does_not_inherit_histories(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await _forgotten(worker, stall)
    assert (await _as(worker, Reader(APP), machine_id)).id == machine_id
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    await worker.app()
    with pytest.raises(NotFound):
        await _as(worker, Reader(APP), machine_id)
    assert (await _history(worker, machine_id)).id == machine_id


def _key(machine_id: str, key: str) -> MetadataKeyParams:
    return MetadataKeyParams(app_name=APP, machine_id=machine_id, key=key)


async def test_metadata_makes_no_new_version_and_needs_no_lease(worker: SimWorker) -> None:
    machine_id = await worker.started(metadata={"a": "1"})
    before = worker.record(machine_id)
    await worker.api.call(CREATE_LEASE, params=params(machine_id))
    await worker.set_metadata(machine_id, "b", "2")
    after = worker.record(machine_id)
    assert after.config.metadata == {"a": "1", "b": "2"}
    assert (after.version, after.running, after.state) == (before.version, before.running, before.state)


async def test_a_patch_merges_and_null_or_nothing_removes(worker: SimWorker) -> None:
    machine_id = await worker.stopped(metadata={"a": "1", "b": "2", "c": "3"})
    patch = UpdateMetadataRequest(metadata={"a": None, "b": "", "d": "4"})
    await worker.api.call(UPDATE_METADATA, params=params(machine_id), body=patch)
    assert await worker.api.call(LIST_METADATA, params=params(machine_id)) == {"c": "3", "d": "4"}


async def test_one_key_is_read_and_deleted(worker: SimWorker) -> None:
    machine_id = await worker.stopped(metadata={"a": "1"})
    assert (await worker.api.call(GET_METADATA, params=_key(machine_id, "a"))).value == "1"
    await worker.api.call(DELETE_METADATA, params=_key(machine_id, "a"))
    with pytest.raises(NotFound):
        await worker.api.call(GET_METADATA, params=_key(machine_id, "a"))
    assert worker.record(machine_id).config.metadata is None


async def test_a_stale_version_is_refused(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    stale = UpdateMetadataRequest(metadata={"a": "1"}, machine_version="01J")
    with pytest.raises(WrongState, match="stale"):
        await worker.api.call(UPDATE_METADATA, params=params(machine_id), body=stale)
    for version in (worker.record(machine_id).version, "", None):  # what Go sends for none is no version either
        current = UpdateMetadataRequest(metadata={"a": "1"}, machine_version=version)
        await worker.api.call(UPDATE_METADATA, params=params(machine_id), body=current)


async def test_more_keys_than_are_taken_now_can_be_removed_one_by_one(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    record, table = worker.record(machine_id), worker.parts.deps.table
    many = msgspec.structs.replace(record.config, metadata={str(number): "x" for number in range(1002)})
    previous = Previous(version=record.version, config=many, image=record.image, state=record.state, holds=record.holds)
    await worker.store.write(lambda tx: table.change(tx, record, config=many, previous=previous))
    await worker.api.call(DELETE_METADATA, params=_key(machine_id, "0"))
    with pytest.raises(Unprocessable, match="more than 1000 keys"):
        await worker.set_metadata(machine_id, "new", "x")
    await worker.set_metadata(machine_id, "1", "y")
    after = worker.record(machine_id)
    assert after.previous is not None and after.previous.config == after.config
    assert len(after.config.metadata or {}) == 1001 and (after.config.metadata or {})["1"] == "y"


async def test_a_machine_that_is_gone_takes_no_metadata(worker: SimWorker) -> None:
    machine_id = await worker.stopped(metadata={"a": "1"})
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await worker.set_metadata(machine_id, "a", "2")
    assert await worker.api.call(LIST_METADATA, params=params(machine_id)) == {"a": "1"}


async def test_others_run_while_an_app_is_listed_beside_many_destroyed_machines(worker: SimWorker) -> None:
    made = worker.record(await worker.stopped())

    def fill(tx: Tx) -> None:
        for number in range(320):
            gone = msgspec.structs.replace(made, id=MachineId(f"{number:014x}"), app=AppName("other"))
            tx.put(DESTROYED, gone.id, gone)

    await worker.store.write(fill)
    turns = list[int]()

    async def take_turns() -> None:
        while True:
            await checkpoint()
            turns.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        page = await _list(worker, include_deleted=True)
        tasks.cancel_scope.cancel()
    assert [each.id for each in page.items] == [made.id]
    assert len(turns) >= 20
