"""What every driver promises to a reconciler: who runs, what they have lost, and how it is given back."""

import pytest

from hawker.ids import MachineId
from hawker.runtime.driver import LostPart
from tests.contract.drivers import Rig

pytestmark = pytest.mark.anyio
FOREVER = ("sleep", "1000")
NOBODY = MachineId("00000000000bad")


async def test_running_processes_are_known_to_a_driver_that_has_just_begun(rig: Rig) -> None:
    running, prepared, ended = await rig.started(FOREVER), await rig.spec(FOREVER), await rig.started(FOREVER)
    await rig.driver.prepare(prepared)
    await rig.driver.stop(ended.machine_id, "SIGKILL", 5)
    assert await rig.renew().running() == {running.machine_id}


async def test_a_whole_instance_has_lost_nothing(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    assert await rig.driver.lost([spec.machine_id, NOBODY]) == {}
    assert await rig.driver.orphans() == frozenset()
    await rig.driver.end_orphans(spec.machine_id)
    await rig.driver.mend(spec.machine_id)
    assert await rig.driver.running() == {spec.machine_id}


async def test_an_instance_that_lost_its_directory_is_loose_and_can_be_ended(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    rig.lose_directory(spec.machine_id)
    driver = rig.renew()
    assert await driver.running() == frozenset()
    assert await driver.orphans() == {spec.machine_id} and spec.machine_id in await driver.list()
    await driver.end_orphans(spec.machine_id)
    assert await driver.orphans() == frozenset()


async def test_destroy_ends_what_lost_its_directory(rig: Rig) -> None:
    spec = await rig.started(FOREVER)
    rig.lose_directory(spec.machine_id)
    await rig.driver.destroy(spec.machine_id)
    assert await rig.driver.orphans() == frozenset()
    assert spec.machine_id not in await rig.driver.list()


async def test_a_lost_control_group_is_given_back_while_the_instance_runs(rig: Rig) -> None:
    if rig.lose_cgroup is None:
        pytest.skip("these machines have no control group here, or one that only the runtime can make")
    spec = await rig.started(FOREVER)
    before = await rig.driver.inspect(spec.machine_id)
    rig.lose_cgroup(spec.machine_id)
    assert await rig.driver.lost([spec.machine_id]) == {spec.machine_id: frozenset({LostPart.CGROUP})}
    await rig.renew().mend(spec.machine_id)
    assert await rig.driver.lost([spec.machine_id]) == {}
    assert await rig.driver.inspect(spec.machine_id) == before


async def test_an_instance_without_its_control_group_can_be_ended(rig: Rig) -> None:
    if rig.lose_cgroup is None:
        pytest.skip("these machines have no control group here")
    first, second = await rig.started(FOREVER), await rig.started(FOREVER)
    rig.lose_cgroup(first.machine_id)
    rig.lose_cgroup(second.machine_id)
    assert (await rig.driver.stop(first.machine_id, "SIGTERM", 5)).signal in (9, 15)
    await rig.driver.destroy(second.machine_id)
    assert await rig.driver.running() == frozenset()
