"""What every driver with limits promises of an instance's memory while it runs."""

import os
from functools import partial

import pytest

from hawker.errors import HawkerError, NotServed, WrongState
from hawker.runtime.driver import ExecSpec, Phase
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
FOREVER = ("sleep", "1000")
CACHING = "head -c 33554432 /dev/zero > /big && cat /big > /dev/null && echo done && sleep 1000"


@pytest.fixture
def limited(rig: Rig) -> Rig:
    if not rig.driver.features.limits:
        pytest.skip("this driver has no limits; that it says so is a test of its own")
    return rig


async def test_a_driver_without_limits_says_so(rig: Rig) -> None:
    if rig.driver.features.limits:
        pytest.skip("this driver has limits")
    spec = await rig.started(FOREVER)
    for call in (
        partial(rig.driver.memory, spec.machine_id),
        partial(rig.driver.limit_memory, spec.machine_id, 64),
        partial(rig.driver.reclaim_memory, spec.machine_id, 1),
    ):
        with pytest.raises(NotServed, match="no limits"):
            await call()


async def test_the_limit_is_the_specs_until_it_is_changed(limited: Rig) -> None:
    spec = await limited.started(FOREVER)
    found = await limited.driver.memory(spec.machine_id)
    assert found.limit_mib == spec.limits.memory_mib and 0 < found.available_mib <= found.limit_mib
    for limit_mib in (160, 200, 200, 96):
        await limited.driver.limit_memory(spec.machine_id, limit_mib)
        found = await limited.renew().memory(spec.machine_id)
        assert found.limit_mib == limit_mib and 0 < found.available_mib <= limit_mib
    assert (await limited.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_a_changed_limit_is_found_again_when_a_lost_group_is_made_anew(limited: Rig) -> None:
    if limited.lose_cgroup is None:
        pytest.skip("only the runtime can make these machines' control groups")
    spec = await limited.started(FOREVER)
    await limited.driver.limit_memory(spec.machine_id, 200)
    limited.lose_cgroup(spec.machine_id)
    await limited.renew().mend(spec.machine_id)
    assert (await limited.renew().memory(spec.machine_id)).limit_mib == 200


async def test_the_next_instance_has_its_own_limit(limited: Rig) -> None:
    spec = await limited.started(FOREVER)
    await limited.driver.limit_memory(spec.machine_id, 200)
    await limited.driver.stop(spec.machine_id, "SIGKILL", 5)
    following = await limited.spec(FOREVER, again=spec)
    await limited.driver.start(following)
    assert (await limited.driver.memory(spec.machine_id)).limit_mib == following.limits.memory_mib


async def test_less_than_is_in_use_is_refused_and_ends_nothing(limited: Rig, real: Rig) -> None:
    spec = await limited.started("x=$(yes | head -c 20971520); echo full; sleep 1000; echo ${#x}")

    async def full() -> bool:
        return any(b"full" in chunk.data for chunk in limited.driver.output(spec.machine_id))

    await eventually(full, 60 + 45 * limited.boot_s)
    with pytest.raises(WrongState, match="cannot give back: the limit must be at least"):
        await limited.driver.limit_memory(spec.machine_id, 16)
    assert (await limited.driver.memory(spec.machine_id)).limit_mib == spec.limits.memory_mib
    assert (await limited.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_caches_are_given_back_and_counted(limited: Rig, real: Rig) -> None:
    spec = await limited.started(CACHING)

    async def cached() -> bool:
        return any(b"done" in chunk.data for chunk in limited.driver.output(spec.machine_id))

    async def given_back() -> bool:
        """What was read and is on the disk can be dropped. A host that is short of memory may have done so before."""
        read = await limited.driver.exec(spec.machine_id, ExecSpec(argv=("/bin/sh", "-c", "cat /big > /dev/null")))
        await read.wait()
        os.sync()  # what is not on the disk yet cannot be dropped
        before = await limited.driver.stats(spec.machine_id)
        given_mib = await limited.driver.reclaim_memory(spec.machine_id, 24)
        after = await limited.driver.stats(spec.machine_id)
        return given_mib >= 16 and before.memory_bytes - after.memory_bytes >= (given_mib - 4) << 20

    await eventually(cached)
    await eventually(given_back)
    assert (await limited.driver.memory(spec.machine_id)).limit_mib == spec.limits.memory_mib


async def test_nothing_is_given_back_when_nothing_is_asked_for(limited: Rig) -> None:
    spec = await limited.started(FOREVER)
    assert await limited.driver.reclaim_memory(spec.machine_id, 0) == 0


async def test_a_suspended_instance_has_its_memory_too(limited: Rig) -> None:
    spec = await limited.started(FOREVER)
    await limited.driver.suspend(spec.machine_id)
    assert (await limited.driver.memory(spec.machine_id)).limit_mib == spec.limits.memory_mib
    assert await limited.driver.reclaim_memory(spec.machine_id, 1) >= 0


async def test_a_run_that_has_ended_has_no_memory(limited: Rig) -> None:
    spec = await limited.started("exit 0")
    await limited.driver.wait(spec.machine_id)
    with pytest.raises(HawkerError):
        await limited.driver.memory(spec.machine_id)
    with pytest.raises(HawkerError):
        await limited.driver.limit_memory(spec.machine_id, 96)
