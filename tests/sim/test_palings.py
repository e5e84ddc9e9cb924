import pytest

from hawker.errors import Fault
from hawker.host.network_policy import PacketFilter
from hawker.ids import MachineId
from hawker.sim.fuse import Fuse
from hawker.sim.palings import Palings

pytestmark = pytest.mark.anyio
ONE, OTHER = PacketFilter(MachineId("00000000000001"), 7), PacketFilter(MachineId("00000000000002"), 7)


async def test_what_was_raised_stands_until_something_else_is() -> None:
    palings = Palings(Fuse())
    assert await palings.in_force([])
    await palings.install_filters([ONE])
    assert await palings.in_force([ONE]) and not await palings.in_force([ONE, OTHER])
    await palings.install_filters([ONE])
    assert palings.raised == 1
    await palings.install_filters([])
    assert await palings.in_force([]) and palings.raised == 2


async def test_a_host_that_refuses_keeps_what_it_has() -> None:
    palings = Palings(Fuse())
    await palings.install_filters([ONE])
    palings.broken = 1
    with pytest.raises(Fault):
        await palings.install_filters([OTHER])
    assert await palings.in_force([ONE])
    await palings.install_filters([OTHER])
