from pathlib import Path

import pytest

from hawker.errors import Conflict, NoRoom
from hawker.machine import State
from hawker.node import Resources
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.table import VERSIONS_KEPT_BYTES
from tests.worker.images import image_in, spoil
from tests.worker.invariants import check_at_rest, check_store

pytestmark = pytest.mark.anyio
LARGE = {"cpu_kind": "shared", "cpus": 3, "memory_mb": 768}
_LARGE_BYTES = 130_000
SMALL = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}


async def test_update_makes_a_new_version_and_the_old_one_shows_replaced(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(env={"A": "1"})
    first = worker.record(machine_id)
    updated = await worker.update(machine_id, env={"A": "2"})
    assert updated.version > first.version and updated.state is State.UPDATING
    second = await worker.reaches(machine_id, State.STARTED)
    assert first.running is not None and second.running is not None
    assert second.running.instance_id != first.running.instance_id
    old = await worker.get(machine_id, version=first.version)
    assert old.state is State.REPLACED and old.config is not None and old.config.env == {"A": "1"}
    assert (await worker.get(machine_id, version=second.version)).state is State.STARTED
    check_at_rest(stall)


async def test_the_new_version_runs_with_its_own_config_and_image(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    machine_id = await worker.started()
    image = image_in(tmp_path / "new", "other")
    await worker.update(machine_id, image=image, env={"A": "2"})
    record = await worker.reaches(machine_id, State.STARTED)
    instance = stall.host.look(record.id)
    assert instance is not None and instance.spec.processes[0].argv == ("other",)
    assert instance.spec.processes[0].env["A"] == "2"
    assert stall.rootfs.mounted[record.id][1] == record.image.digest != (await worker.create()).image_ref.digest


async def test_an_image_that_cannot_be_had_leaves_the_old_version_running(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    machine_id = await worker.started(env={"A": "1"}, guest=LARGE)
    before = worker.record(machine_id)
    pull = stall.hold(image := image_in(tmp_path / "bad"))
    await worker.update(machine_id, image=image, guest=SMALL)
    assert worker.record(machine_id).holds == before.holds, "the old instance still has its room"
    spoil(image)
    pull.set()
    record = await worker.reaches(machine_id, State.STARTED)
    assert (record.version, record.config, record.image) == (before.version, before.config, before.image)
    assert (record.running, record.holds) == (before.running, before.holds)
    assert worker.events(machine_id)[-2:] == ["update/updating", "update/failed"]
    assert record.id in stall.networks.plugged, "a running machine keeps its network"
    check_at_rest(stall)


async def test_a_smaller_version_gives_back_room_once_it_runs(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(guest=LARGE)
    stall.host.stubborn.add(worker.record(machine_id).id)
    await worker.update(machine_id, guest=SMALL)
    with pytest.raises(NoRoom):
        await worker.create(guest=LARGE)
    record = await worker.reaches(machine_id, State.STARTED)
    assert (record.holds.shared_cpus, record.holds.memory_mib) == (1, 256)
    await worker.started(guest=LARGE)
    check_at_rest(stall)


async def test_a_larger_version_is_refused_when_the_host_is_full(worker: SimWorker) -> None:
    machine_id = await worker.started(guest=SMALL)
    await worker.started(guest={**SMALL, "memory_mb": 512})
    before = worker.record(machine_id)
    with pytest.raises(Conflict, match="could not reserve resource for machine: insufficient memory"):
        await worker.update(machine_id, guest=LARGE)
    assert worker.record(machine_id) == before
    check_store(worker.store)


async def test_skip_launch_leaves_the_machine_off(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await worker.update(machine_id, order={"skip_launch": True}, env={"A": "2"})
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.holds == Resources() and record.config.env == {"A": "2"}
    check_at_rest(stall)


async def test_a_stopped_machine_is_started_by_an_update(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    await worker.update(machine_id, env={"A": "2"})
    await worker.reaches(machine_id, State.STARTED)
    check_at_rest(stall)


async def test_a_stale_version_and_a_second_update_are_conflicts(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    first = worker.record(machine_id).version
    stall.host.stubborn.add(worker.record(machine_id).id)
    with pytest.raises(Conflict, match="aborted: machine update failed due to concurrent update"):
        await worker.update(machine_id, order={"current_version": "01J"})
    await worker.update(machine_id, order={"current_version": first}, env={"A": "2"})
    with pytest.raises(Conflict, match="concurrent update"):
        await worker.update(machine_id, env={"A": "3"})
    await worker.reaches(machine_id, State.STARTED)


async def test_a_new_version_whose_command_does_not_exist_is_tried_again_by_its_policy(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    await worker.update(machine_id, init={"exec": ["/nope"]}, restart={"policy": "on-failure", "max_retries": 1})
    await worker.reaches(machine_id, State.STOPPED)
    assert [line for line in worker.events(machine_id) if line == "exit/stopped"] == ["exit/stopped"] * 3
    check_at_rest(stall)


async def test_a_new_version_that_cannot_be_started_is_failed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.script("start", *[FakeFault(error=OSError("no"), after=True)] * 3)
    updated = await worker.update(machine_id, env={"A": "2"})
    record = await worker.reaches(machine_id, State.FAILED)
    assert record.version == updated.version
    check_at_rest(stall)


async def test_a_stopped_machine_whose_new_version_cannot_be_started_is_as_before(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.stopped()
    before = worker.record(machine_id)
    stall.host.script("start", *[FakeFault(error=OSError("no"))] * 3)
    await worker.update(machine_id, env={"A": "2"})
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.version == before.version and record.config == before.config
    check_at_rest(stall)


async def test_stop_overtakes_an_update_that_waits_for_its_image_and_keeps_the_new_version(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    machine_id = await worker.started()
    pull = stall.hold(image := image_in(tmp_path / "new"))
    updated = await worker.update(machine_id, image=image)
    await worker.stop(machine_id)
    assert await worker.wait(machine_id, "stopped", timeout=10) is State.STOPPED
    assert worker.record(machine_id).version == updated.version, "an acknowledged update is kept"
    await worker.start(machine_id)
    pull.set()
    record = await worker.reaches(machine_id, State.STARTED)
    assert stall.rootfs.mounted[record.id][1] == record.image.digest
    check_at_rest(stall)


async def test_destroy_overtakes_an_update(worker: SimWorker, stall: MemoryWorld, tmp_path: Path) -> None:
    machine_id = await worker.started()
    stall.hold(image := image_in(tmp_path / "new"))
    await worker.update(machine_id, image=image)
    await worker.destroy(machine_id, force=True)
    assert await worker.wait(machine_id, "destroyed", timeout=10) is State.DESTROYED
    assert stall.host.machines() == []


async def test_a_machine_that_crashes_again_and_again_can_be_updated(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(init={"exec": ["false"]}, restart={"policy": "always"})
    await stall.clock.sleep(100)
    await worker.reaches(machine.id, State.STARTING)
    await worker.update(machine.id)
    await worker.reaches(machine.id, State.STARTED)
    await stall.clock.sleep(100)
    assert worker.record(machine.id).state is State.STARTED
    check_at_rest(stall)


async def test_metadata_written_during_an_update_outlives_its_failure(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    machine_id = await worker.started(metadata={"a": "1"})
    pull = stall.hold(image := image_in(tmp_path / "bad"))
    await worker.update(machine_id, image=image, metadata={"b": "2"})
    await worker.set_metadata(machine_id, "c", "3")
    spoil(image)
    pull.set()
    record = await worker.reaches(machine_id, State.STARTED)
    assert record.config.metadata == {"a": "1", "c": "3"}


async def test_a_machine_keeps_its_secrets_though_more_updates_failed_than_versions_are_kept(
    worker: SimWorker, stall: MemoryWorld, tmp_path: Path
) -> None:
    await worker.parts.deps.secrets.set("stall", {"KEY": "k"})
    machine_id = await worker.started()
    before = worker.record(machine_id)
    spoil(image := image_in(tmp_path / "bad"))
    for _ in range(VERSIONS_KEPT_BYTES // _LARGE_BYTES + 2):
        await worker.update(machine_id, image=image, env={"X": "x" * _LARGE_BYTES})
        await worker.reaches(machine_id, State.STARTED)
    await worker.restart(machine_id)
    record = await worker.reaches(machine_id, State.STARTED)
    instance = stall.host.look(record.id)
    assert record.version == before.version and instance is not None
    assert instance.spec.processes[0].env["KEY"] == "k"
