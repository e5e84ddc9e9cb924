import pytest

from hawker.errors import Fault
from hawker.host.fences import Fence
from hawker.ids import MachineId
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakePolicies

pytestmark = pytest.mark.anyio
ONE, OTHER = Fence(MachineId("00000000000001"), 7), Fence(MachineId("00000000000002"), 7)


async def test_policies_in_force_stand_until_others_are() -> None:
    policies = FakePolicies(CrashPoints())
    assert await policies.fenced([])
    await policies.raise_fences([ONE])
    assert await policies.fenced([ONE]) and not await policies.fenced([ONE, OTHER])
    await policies.raise_fences([ONE])
    assert policies.raised == 1
    await policies.raise_fences([])
    assert await policies.fenced([]) and policies.raised == 2


async def test_a_host_that_refuses_keeps_what_it_has() -> None:
    policies = FakePolicies(CrashPoints())
    await policies.raise_fences([ONE])
    policies.broken = 1
    with pytest.raises(Fault):
        await policies.raise_fences([OTHER])
    assert await policies.fenced([ONE])
    await policies.raise_fences([OTHER])
