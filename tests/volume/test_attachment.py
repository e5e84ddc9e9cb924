"""Which machine has which volume: decided with the machine, exclusive, and kept for the machine's life."""

from typing import Any

import msgspec
import pytest

from hawker.config import MachineConfig
from hawker.config.machine import Mount
from hawker.errors import NoRoomAtVolume, NotFound, Unprocessable, WrongState
from hawker.ids import MachineId, VolumeId
from hawker.machine import State
from hawker.node import Capacity
from hawker.record.volume import VOLUMES, VolumeRecord
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume.attachment import attach, detach, volume_id_of
from tests.worker.invariants import check_at_rest
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio


def on(volume: str = "", path: str = "/data", **fields: Any) -> list[dict[str, Any]]:
    return [{"volume": volume, "path": path, **fields}]


def record(worker: SimWorker, volume_id: str) -> VolumeRecord:
    found = worker.store.get(VOLUMES, volume_id)
    assert found is not None
    return found


async def test_a_machine_has_its_volume_from_its_order_on(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine = await worker.create(mounts=on(volume.id))
    assert record(worker, volume.id).machine == machine.id
    await worker.reaches(machine.id, State.STARTED)
    assert stall.disks.attached == {volume.id}
    check_at_rest(stall)


async def test_a_name_means_the_oldest_free_volume_and_is_filled_in(worker: SimWorker, stall: MemoryWorld) -> None:
    first = await worker.volume("data", size_gb=1)
    stall.clock.ahead_s += 1
    second = await worker.volume("data", size_gb=1)
    machines = [await worker.create(mounts=on(name="data")) for _ in range(2)]
    assert [volume_id_of(worker.record(each.id).config) for each in machines] == [first.id, second.id]
    assert machines[0].config is not None and machines[0].config.mounts is not None
    assert machines[0].config.mounts[0].volume == first.id and machines[0].config.mounts[0].name == "data"
    with pytest.raises(WrongState, match="every volume of that name is attached"):
        await worker.create(mounts=on(name="data"))
    with pytest.raises(WrongState, match="none of that name"):
        await worker.create(mounts=on(name="other"))


async def test_a_second_machine_is_refused_and_told_who_has_it(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine = await worker.create(mounts=on(volume.id))
    with pytest.raises(WrongState, match=f"is attached to machine {machine.id}"):
        await worker.create(mounts=on(volume.id))


async def test_a_volume_is_of_its_own_app_and_not_on_its_way_out(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    await worker.app("other")
    with pytest.raises(NotFound, match="app 'other' has no volume"):
        await worker.create(app="other", mounts=on(volume.id))
    await worker.delete_volume(volume.id)
    with pytest.raises(NotFound, match="has no volume"):
        await worker.create(mounts=on(volume.id))


async def test_a_machine_s_end_frees_the_volume_and_keeps_what_is_in_it(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    machine_id = await worker.started(mounts=on(volume.id))
    await worker.destroy(machine_id, force=True)
    await worker.reaches(machine_id, State.DESTROYED)
    assert record(worker, volume.id).machine is None and stall.disks.made[VolumeId(volume.id)] == 1
    await worker.started(mounts=on(volume.id))
    check_at_rest(stall)


async def test_an_order_that_is_given_again_is_the_same_machine(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    first = await worker.create(key="one", mounts=on(volume.id))
    assert (await worker.create(key="one", mounts=on(volume.id))).id == first.id


async def test_an_order_without_room_leaves_the_volume_free(worker: SimWorker, stall: MemoryWorld) -> None:
    volume = await worker.volume("data", size_gb=1)
    stall.room = Capacity(cpus=1, memory_mib=1, disk_mib=100_000)
    with pytest.raises(NoRoomAtVolume, match=f"existing volume id '{volume.id}'"):
        await worker.create(mounts=on(volume.id))
    assert record(worker, volume.id).machine is None


@pytest.mark.parametrize(
    ("asks", "says"),
    [({"encrypted": True}, "is not encrypted"), ({"size_gb": 2}, "has 1 GB, not 2: extend it first")],
)
async def test_a_use_the_volume_does_not_have_is_refused(worker: SimWorker, asks: dict[str, Any], says: str) -> None:
    volume = await worker.volume("data", size_gb=1, encrypted=False)
    with pytest.raises(Unprocessable, match=says):
        await worker.create(mounts=on(volume.id, **asks))


async def test_an_update_may_move_it_and_nothing_else(worker: SimWorker) -> None:
    volume, other = await worker.volume("data", size_gb=1), await worker.volume("other", size_gb=1)
    machine_id, plain = await worker.started(mounts=on(volume.id)), await worker.started()
    for mounts in (on(other.id), on(name="other"), []):
        with pytest.raises(Unprocessable, match="attached until the machine is destroyed"):
            await worker.update(machine_id, mounts=mounts)
    with pytest.raises(Unprocessable, match="gets its volume when it is created"):
        await worker.update(plain, mounts=on(other.id))
    await worker.update(machine_id, mounts=on(name="data", path="/moved"))
    record_ = await worker.reaches(machine_id, State.STARTED)
    assert record_.config.mounts is not None
    assert (record_.config.mounts[0].volume, record_.config.mounts[0].path) == (volume.id, "/moved")


# --- what a guest wrote


async def test_a_volume_that_a_guest_gets_as_blocks_is_marked_with_its_machine(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    wants = machine(
        MachineId("0000000000000a"),
        app=APP,
        config=MachineConfig(image="a", mounts=(Mount(volume=volume.id, path="/d"),)),
    )
    await worker.store.write(lambda tx: attach(tx, wants, NOW, to_guest=True))
    assert record(worker, volume.id).guest_written and record(worker, volume.id).machine == wants.id
    await worker.store.write(lambda tx: detach(tx, wants, NOW))
    assert record(worker, volume.id).guest_written, "it stays so when the guest is gone"


async def test_a_marked_volume_is_refused_to_a_machine_that_the_host_mounts_it_for(worker: SimWorker) -> None:
    volume = await worker.volume("data", size_gb=1)
    marked = msgspec.structs.replace(record(worker, volume.id), guest_written=True)
    await worker.store.write(lambda tx: tx.put(VOLUMES, volume.id, marked))
    with pytest.raises(WrongState, match="was the disk of a microVM"):
        await worker.create(mounts=on(volume.id))
    assert record(worker, volume.id).machine is None
