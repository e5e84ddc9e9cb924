import pytest

from hawker.sim.inspect import look
from hawker.sim.life import Worker
from hawker.sim.world import Stall

pytestmark = pytest.mark.anyio


async def test_it_sees_what_runs_what_is_mounted_and_how_it_ended(worker: Worker, stall: Stall) -> None:
    record = worker.record(await worker.started())
    seen = look(stall.host, stall.rootfs, stall.networks)
    assert record.running is not None
    assert seen.running == seen.mounted == {record.id: record.running.instance_id}
    assert seen.instances == seen.directories == seen.networks == {record.id}
    stall.host.end(record.id, 3)
    assert [exit.exit_code for exit in (stall.seen().ended or {})[record.id]] == [3]


async def test_an_instance_that_was_launched_twice_is_doubled(worker: Worker, stall: Stall) -> None:
    record = worker.record(await worker.started())
    stall.host.launch(stall.host.ever[record.id][0])
    assert stall.seen().doubled == {record.id}
