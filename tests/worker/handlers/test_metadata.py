import pytest

from hawker.api.contract.lease import CREATE_LEASE
from hawker.api.contract.metadata import (
    DELETE_METADATA,
    GET_METADATA,
    LIST_METADATA,
    UPDATE_METADATA,
    MetadataKeyParams,
    UpdateMetadataRequest,
)
from hawker.errors import NotFound, WrongState
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker, params

pytestmark = pytest.mark.anyio


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


async def test_a_machine_that_is_gone_takes_no_metadata(worker: SimWorker) -> None:
    machine_id = await worker.stopped(metadata={"a": "1"})
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await worker.set_metadata(machine_id, "a", "2")
    assert await worker.api.call(LIST_METADATA, params=params(machine_id)) == {"a": "1"}
