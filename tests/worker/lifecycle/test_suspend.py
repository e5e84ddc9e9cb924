from pathlib import Path

import anyio
import pytest

from hawker.api.contract.exec import EXEC_MACHINE, LIST_PROCESSES, ExecRequest
from hawker.api.contract.machine import SignalRequest
from hawker.api.contract.machine_operation import SIGNAL_MACHINE
from hawker.errors import Conflict, NotServed, WrongState
from hawker.machine import State
from hawker.node import Resources
from hawker.runtime.driver import Features, Phase
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.kit import WorkerKit
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld
from hawker.worker.health import Probe
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
CHECKED = {"checks": {"web": {"type": "tcp", "port": 80, "interval": "10s"}}}


async def suspended(worker: SimWorker, **config: object) -> str:
    machine_id = await worker.started(**config)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    return machine_id


async def test_a_suspended_machine_keeps_its_instance_held_still_and_its_room(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    before = worker.record(machine_id)
    assert await worker.suspend(machine_id) == "freeze"
    record = await worker.reaches(machine_id, State.SUSPENDED)
    assert (record.running, record.holds) == (before.running, before.holds)
    assert stall.host.suspended() == {record.id} == stall.host.running().keys()
    assert worker.events(machine_id)[-2:] == ["suspend/suspending", "suspend/suspended"]
    assert await worker.reconciler.find() == []
    check_at_rest(stall)


async def test_suspending_twice_is_done_once(worker: SimWorker) -> None:
    machine_id = await suspended(worker)
    await worker.suspend(machine_id)
    await worker.at_rest()
    assert worker.events(machine_id).count("suspend/suspending") == 1


async def test_a_wait_for_suspended_is_answered(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.suspend(machine_id)
    assert await worker.wait(machine_id, "suspended") is State.SUSPENDED
    assert await worker.wait(machine_id, "settled") is State.SUSPENDED


async def test_only_what_is_started_can_be_suspended(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    with pytest.raises(WrongState, match="unable to suspend machine from current state: 'stopped'"):
        await worker.suspend(machine_id)


async def test_a_driver_that_cannot_is_named(tmp_path: Path) -> None:
    plain = Features(rootfs=True, network=True, limits=True)
    stall = MemoryWorld(tmp_path, kit=WorkerKit(driver=lambda host, _: FakeDriver(host, plain)))
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        with pytest.raises(NotServed, match=r"driver \(fake\).*: stop the machine instead"):
            await worker.suspend(machine_id)
        assert worker.record(machine_id).state is State.STARTED


async def test_calls_into_it_are_refused_at_once(worker: SimWorker) -> None:
    machine_id = await suspended(worker)
    target = params(machine_id)
    with pytest.raises(WrongState, match="unable to exec machine from current state: 'suspended'"):
        await worker.api.call(EXEC_MACHINE, params=target, body=ExecRequest(command=("true",)))
    with pytest.raises(WrongState, match="'suspended'"):
        await worker.api.call(LIST_PROCESSES, params=target)
    with pytest.raises(WrongState, match="unable to signal machine from current state: 'suspended'"):
        await worker.api.call(SIGNAL_MACHINE, params=target, body=SignalRequest(signal="TERM"))


async def test_checks_pause(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(**CHECKED)
    await stall.clock.sleep(30)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    asked: list[Probe] = list(stall.prober.asked)
    await stall.clock.sleep(300)
    assert stall.prober.asked == asked
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(30)
    assert len(stall.prober.asked) > len(asked)


async def test_a_stop_discards_it(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    await worker.stop(machine_id)
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.holds == Resources() and stall.host.running() == {}
    assert (await worker.exits(machine_id))[0].status == "stopped"
    check_at_rest(stall)


async def test_a_stop_overtakes_it(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.script("suspend", FakeFault(delay_s=20))
    machine_id = await worker.started()
    await worker.suspend(machine_id)
    await stall.clock.sleep(1)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    check_at_rest(stall)


async def test_a_destroy_needs_no_force(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    check_at_rest(stall)


async def test_restart_and_update_begin_anew(worker: SimWorker, stall: MemoryWorld) -> None:
    first, second = await suspended(worker), await suspended(worker)
    before = {each: worker.record(each).running for each in (first, second)}
    await worker.restart(first)
    await worker.update(second, env={"A": "2"})
    for machine_id in (first, second):
        record = await worker.reaches(machine_id, State.STARTED)
        assert record.running is not None and before[machine_id] != record.running
    check_at_rest(stall)


async def test_an_update_that_cannot_be_prepared_leaves_it_suspended(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    before = worker.record(machine_id)
    stall.host.script("stop", *[FakeFault(error=OSError("no"))] * 20)
    await worker.update(machine_id, env={"A": "2"})
    record = await worker.reaches(machine_id, State.SUSPENDED)
    assert (record.version, record.running, record.holds) == (before.version, before.running, before.holds)
    assert worker.events(machine_id)[-1] == "update/failed"
    stall.host.forgive()
    check_at_rest(stall)


async def test_a_restart_that_cannot_end_it_lets_it_go_on(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await suspended(worker)
    stall.host.script("stop", *[FakeFault(error=OSError("no"))] * 20)
    await worker.restart(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert worker.events(machine_id)[-1] == "restart/failed"
    stall.host.forgive()
    check_at_rest(stall)


async def test_a_machine_that_cannot_be_held_still_goes_on_and_says_why(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.script("suspend", *[FakeFault(error=OSError("the freezer is broken"))] * 20)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    newest = (await worker.get(machine_id)).events[0]
    assert (newest.type, newest.status) == ("suspend", "failed") and "the freezer is broken" in newest.error
    stall.host.forgive()
    check_at_rest(stall)


async def test_an_instance_that_ends_first_is_left_to_its_policy(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(restart={"policy": "always"})
    stall.host.script("suspend", FakeFault(delay_s=5))
    await worker.suspend(machine_id)
    await stall.clock.sleep(1)
    stall.host.end(worker.record(machine_id).id, 3)
    await stall.clock.sleep(60)
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None and record.running.exit.exit_code == 3
    check_at_rest(stall)


async def test_a_host_that_rebooted_meanwhile_leaves_it_stopped(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await suspended(worker, restart={"policy": "always"})
    stall.crash()
    stall.reboot()
    async with stall.open() as worker:
        record = await worker.reaches(machine_id, State.STOPPED)
        assert record.holds == Resources()
        shown = await worker.get(machine_id)
        assert (
            shown.events[0].type == "exit" and shown.events[0].error == "it was suspended: the next start is a cold one"
        )
        await worker.start(machine_id)
        await worker.reaches(machine_id, State.STARTED)
        assert not (await worker.get(machine_id)).events[0].resumed
        check_at_rest(stall)


async def test_a_daemon_that_comes_back_finds_it_as_it_was(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await suspended(worker)
    stall.crash()
    async with stall.open() as worker:
        await stall.clock.sleep(200)
        assert worker.record(machine_id).state is State.SUSPENDED
        assert (await worker.parts.deps.driver.inspect(worker.record(machine_id).id)).phase is Phase.SUSPENDED
        check_at_rest(stall)


async def test_an_update_does_not_come_in_between(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.host.script("suspend", FakeFault(delay_s=5))
    machine_id = await worker.started()
    await worker.suspend(machine_id)
    with pytest.raises(Conflict, match="concurrent update"):
        await worker.update(machine_id, env={"A": "2"})
    with anyio.fail_after(60):
        await worker.reaches(machine_id, State.SUSPENDED)
