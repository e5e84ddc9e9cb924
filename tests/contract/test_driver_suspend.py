"""What every driver promises of a suspended instance: it is held still until somebody lets it go or ends it."""

from functools import partial
from itertools import pairwise

import pytest

from hawker.errors import NotFound, NotServed, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Driver, ExecSpec, Phase, Suspension
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
FOREVER = ("sleep", "1000")
NOBODY = MachineId("00000000000bad")


@pytest.fixture
def suspending(rig: Rig) -> Rig:
    if rig.driver.features.suspend is None:
        pytest.skip("this driver does not suspend; that it says so is a test of its own")
    return rig


async def count_of(driver: Driver, machine_id: MachineId) -> int:
    return b"".join(chunk.data for chunk in driver.output(machine_id)).count(b"tick")


async def test_a_driver_that_cannot_suspend_says_so(rig: Rig) -> None:
    if rig.driver.features.suspend is not None:
        pytest.skip("this driver suspends")
    spec = await rig.started(FOREVER)
    with pytest.raises(NotServed, match="cannot suspend"):
        await rig.driver.suspend(spec.machine_id)
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING
    assert await rig.driver.suspended() == frozenset()


async def test_a_suspended_instance_is_seen_as_such_by_the_next_daemon(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    running = await suspending.driver.inspect(spec.machine_id)
    await suspending.driver.suspend(spec.machine_id)
    seen = await suspending.renew().recover(spec.machine_id)
    assert seen.phase is Phase.SUSPENDED
    assert (seen.instance_id, seen.started_at) == (running.instance_id, running.started_at)
    assert seen.pid == (None if suspending.driver.features.suspend is Suspension.SNAPSHOT else running.pid)
    assert await suspending.renew().suspended() == {spec.machine_id} == await suspending.renew().running()


@pytest.mark.booted
async def test_nothing_happens_in_it_until_it_is_resumed(suspending: Rig, real: Rig) -> None:
    spec = await suspending.started("while :; do echo tick; sleep 0.01; done")

    async def ticks() -> bool:
        return await count_of(suspending.driver, spec.machine_id) > 3

    await eventually(ticks)
    await suspending.driver.suspend(spec.machine_id)
    counts = [await count_of(suspending.driver, spec.machine_id) for _ in range(200)]
    assert all(before == after for before, after in pairwise(counts))
    await suspending.renew().resume(spec.machine_id)

    async def goes_on() -> bool:
        return await count_of(suspending.driver, spec.machine_id) > counts[-1]

    await eventually(goes_on)


async def test_suspending_and_resuming_twice_is_no_change(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    await suspending.driver.suspend(spec.machine_id)
    await suspending.renew().suspend(spec.machine_id)
    assert (await suspending.driver.inspect(spec.machine_id)).phase is Phase.SUSPENDED
    await suspending.driver.resume(spec.machine_id)
    await suspending.renew().resume(spec.machine_id)
    assert (await suspending.driver.inspect(spec.machine_id)).phase is Phase.RUNNING
    assert await suspending.driver.suspended() == frozenset()


async def test_calls_into_a_suspended_instance_are_refused_at_once(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    await suspending.driver.suspend(spec.machine_id)
    driver = suspending.renew()
    calls = (
        partial(driver.signal, spec.machine_id, 15),
        partial(driver.exec, spec.machine_id, ExecSpec(argv=("true",))),
        partial(driver.processes, spec.machine_id),
        partial(driver.start, spec),
    )
    for call in calls:
        with pytest.raises(WrongState, match="suspended"):
            await call()
    assert (await driver.inspect(spec.machine_id)).phase is Phase.SUSPENDED


async def test_stop_ends_it_with_the_signal(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    await suspending.driver.suspend(spec.machine_id)
    exit = await suspending.renew().stop(spec.machine_id, "SIGTERM", 60)
    assert (exit.exit_code, exit.signal) == (143, 15)
    assert (await suspending.driver.inspect(spec.machine_id)).phase is Phase.EXITED


async def test_destroy_ends_it(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    await suspending.driver.suspend(spec.machine_id)
    await suspending.renew().destroy(spec.machine_id)
    assert (await suspending.driver.inspect(spec.machine_id)).phase is Phase.ABSENT
    assert spec.machine_id not in await suspending.driver.list()


async def test_one_that_lost_its_directory_can_be_ended(suspending: Rig) -> None:
    spec = await suspending.started(FOREVER)
    await suspending.driver.suspend(spec.machine_id)
    suspending.lose_directory(spec.machine_id)
    await suspending.renew().end_orphans(spec.machine_id)
    assert await suspending.driver.orphans() == frozenset()


async def test_a_run_that_has_ended_cannot_be_suspended(suspending: Rig) -> None:
    spec = await suspending.started("exit 3")
    await suspending.driver.wait(spec.machine_id)
    with pytest.raises((WrongState, NotFound)):
        await suspending.driver.suspend(spec.machine_id)
    with pytest.raises((WrongState, NotFound)):
        await suspending.driver.resume(spec.machine_id)
    with pytest.raises(NotFound):
        await suspending.driver.suspend(NOBODY)
    assert (await suspending.driver.inspect(spec.machine_id)).phase is Phase.EXITED
