"""Flows of a volume by itself, over a played host: made whole or not at all, extended in use, removed when told."""

import pytest

from hawker.errors import Fault
from hawker.ids import VolumeId
from hawker.node import Resources
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.volume import VOLUME_CREATE, VOLUME_DESTROY, VOLUME_EXTEND
from hawker.worker.used import used
from hawker.worker.volumes.records import GONE_VOLUMES, VOLUMES, VolumeState
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
MACHINE = [{"name": "data", "path": "/data"}]


def test_flows_of_volumes_have_names_of_their_own() -> None:
    assert [flow.name for flow in (VOLUME_CREATE, VOLUME_EXTEND, VOLUME_DESTROY)] == [
        "volume_create",
        "volume_extend",
        "volume_destroy",
    ]


async def test_a_volume_is_created_once_its_file_is_there(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=2)
    assert (volume.state, stall.disks.files[VolumeId(volume.id)].size_bytes) == ("created", 2 << 30)
    record = worker.store.get(VOLUMES, volume.id)
    assert record is not None and record.made_gb == 2
    check_at_rest(stall)


async def test_a_trouble_that_passes_only_delays_it(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.troubles += [ScriptedFailure("make", after=False), ScriptedFailure("make", after=True)]
    volume = await worker.volume("data", size_gb=1)
    assert volume.state == "created" and stall.disks.made[VolumeId(volume.id)] == 1
    check_at_rest(stall)


async def test_one_that_cannot_be_made_is_taken_back_whole(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.disks.troubles += [ScriptedFailure("make", after=True)] * 5
    with pytest.raises(Fault, match="could not be made: OSError: make failed"):
        await worker.volume("data", size_gb=1)
    assert stall.disks.files == {} and used(worker.store) == Resources()
    (gone,) = [record for _, record in worker.store.scan(GONE_VOLUMES)]
    assert gone.state is VolumeState.DESTROYED
    check_at_rest(stall)


async def test_a_volume_grows_under_a_machine_that_goes_on(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=MACHINE)
    before = worker.record(machine_id).running
    await worker.extend_volume(volume.id, 5)
    assert worker.record(machine_id).running == before
    assert stall.disks.files[VolumeId(volume.id)].filesystem_bytes == 5 << 30
    check_at_rest(stall)


async def test_an_extension_is_not_given_up(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.disks.troubles += [ScriptedFailure("grow", after=False)] * 30
    await worker.extend_volume(volume.id, 2)
    await worker.at_rest(every_s=1.0)
    assert (await worker.get_volume(volume.id)).state == "created"
    assert stall.disks.files[VolumeId(volume.id)].size_bytes == 2 << 30


async def test_a_destroyed_one_leaves_nothing_but_a_word(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.delete_volume(volume.id)
    stall.disks.troubles += [ScriptedFailure("detach", after=True)]
    await worker.parts.volumes.destroy(VolumeId(volume.id))
    await worker.at_rest(every_s=0.1)
    assert stall.disks.files == {} and worker.store.get(VOLUMES, volume.id) is None
    check_at_rest(stall)
