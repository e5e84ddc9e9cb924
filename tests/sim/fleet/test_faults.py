from pathlib import Path

import pytest

from hawker.sim.fleet.faults import FleetFaults
from hawker.sim.fleet.plan import WATCHED, FleetOperation, FleetVerb
from hawker.sim.harness.plan import NATURE
from tests.sim.fleet.clusters import cluster_of, ledger_of

pytestmark = pytest.mark.anyio


async def test_blows_fall_and_at_rest_all_is_healed_and_everybody_is_up(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as (cluster, hosts, tasks):
        nature = FleetFaults(cluster, hosts, ledger_of(cluster), tasks)
        operations = (
            FleetOperation(1, 0.1, NATURE, FleetVerb.KILL, nodes=(0,), for_s=1.0),
            FleetOperation(2, 0.2, NATURE, FleetVerb.POWER, nodes=(1,), for_s=500.0),
            FleetOperation(3, 0.3, NATURE, FleetVerb.CUT, nodes=(0,), for_s=500.0),
            FleetOperation(4, 0.3, NATURE, FleetVerb.ONE_WAY, nodes=(1, 2), for_s=500.0),
            FleetOperation(5, 0.4, NATURE, FleetVerb.LOSS, word="all", amount=0.5, for_s=500.0),
            FleetOperation(6, 0.5, NATURE, FleetVerb.SLOW, nodes=(2,), amount=1.0, for_s=500.0),
            FleetOperation(7, 0.6, NATURE, FleetVerb.CLOCK, nodes=(2,), amount=60.0),
            FleetOperation(8, 0.7, NATURE, FleetVerb.UPGRADE, nodes=(2,), for_s=1.0),
            FleetOperation(9, 0.8, NATURE, FleetVerb.POWER, word=WATCHED, for_s=500.0),
        )
        await nature.rage(operations, cluster.call_network.clock.monotonic())
        await cluster.call_network.clock.sleep(0.1)
        assert (
            cluster.call_network.unplugged == {hosts[1].id}
            and len(cluster.call_network.cuts) == 2
            and cluster.call_network.lost == 0.5
        )
        assert hosts[2].place.clock.ahead_s == 60.0
        await nature.rest()
        assert (
            not cluster.call_network.cuts
            and not cluster.call_network.unplugged
            and cluster.call_network.lost == cluster.network.loss == 0
        )
        assert all(host.node is not None for host in hosts)
        assert [host.lives for host in hosts] == [2, 2, 2] and nature.blows == 9
