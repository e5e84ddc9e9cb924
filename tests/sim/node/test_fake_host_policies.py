import pytest

from hawker.errors import Fault
from hawker.host.network_policy import PacketFilter
from hawker.ids import MachineId
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakePolicies

pytestmark = pytest.mark.anyio
ONE, OTHER = PacketFilter(MachineId("00000000000001"), 7), PacketFilter(MachineId("00000000000002"), 7)


async def test_policies_in_force_stand_until_others_are() -> None:
    policies = FakePolicies(CrashPoints())
    assert await policies.in_force([])
    await policies.install_filters([ONE])
    assert await policies.in_force([ONE]) and not await policies.in_force([ONE, OTHER])
    await policies.install_filters([ONE])
    assert policies.raised == 1
    await policies.install_filters([])
    assert await policies.in_force([]) and policies.raised == 2


async def test_a_host_that_refuses_keeps_what_it_has() -> None:
    policies = FakePolicies(CrashPoints())
    await policies.install_filters([ONE])
    policies.broken = 1
    with pytest.raises(Fault):
        await policies.install_filters([OTHER])
    assert await policies.in_force([ONE])
    await policies.install_filters([OTHER])
