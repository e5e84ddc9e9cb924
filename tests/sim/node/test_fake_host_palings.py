import pytest

from hawker.errors import Fault
from hawker.host.fences import Fence
from hawker.ids import MachineId
from hawker.sim.node.crash_points import CrashPoints
from hawker.sim.node.fake_host import FakePolicies

pytestmark = pytest.mark.anyio
ONE, OTHER = Fence(MachineId("00000000000001"), 7), Fence(MachineId("00000000000002"), 7)


async def test_what_was_raised_stands_until_something_else_is() -> None:
    palings = FakePolicies(CrashPoints())
    assert await palings.fenced([])
    await palings.raise_fences([ONE])
    assert await palings.fenced([ONE]) and not await palings.fenced([ONE, OTHER])
    await palings.raise_fences([ONE])
    assert palings.raised == 1
    await palings.raise_fences([])
    assert await palings.fenced([]) and palings.raised == 2


async def test_a_host_that_refuses_keeps_what_it_has() -> None:
    palings = FakePolicies(CrashPoints())
    await palings.raise_fences([ONE])
    palings.broken = 1
    with pytest.raises(Fault):
        await palings.raise_fences([OTHER])
    assert await palings.fenced([ONE])
    await palings.raise_fences([OTHER])
