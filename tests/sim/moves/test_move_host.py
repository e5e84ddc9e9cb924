import pytest

from tests.sim.moves.fleets import played_fleet
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


async def test_a_host_that_is_killed_loses_what_was_not_synced_and_comes_again() -> None:
    async with played_fleet() as fleet:
        before = fleet.hosts[0].sight()
        assert before.running == {fleet.machine} and before.contents is not None
        await fleet.again(0, kept=0.0, power=True)
        assert fleet.hosts[0].kills == 1 and fleet.hosts[0].worker is not None
        assert await fleet.settled() == []
        assert fleet.hosts[0].sight().running == {fleet.machine}


async def test_a_machine_s_writes_are_in_its_volume() -> None:
    async with played_fleet() as fleet:
        first, second = fleet.hosts[0].write(), fleet.hosts[0].write()
        ((volume, count),) = second.items()
        assert count == first[volume] + 1
        assert fleet.hosts[1].write() == {}
