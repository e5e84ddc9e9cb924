from pathlib import Path

import pytest

from hawker.sim.fleet.checks import not_alike
from tests.sim.fleet.clusters import cluster_of

pytestmark = pytest.mark.anyio


async def test_a_host_lives_dies_stops_and_comes_back_as_the_same_node(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, tasks):
        first = hosts[0]
        for end in (first.kill, first.stop):
            await end()
            assert first.node is None and first.id not in cluster.call_network.peers
            await first.begin(tasks)
        await first.kill(power=True)
        await first.begin(tasks)
        assert (first.lives, first.kills) == (4, 2) and first.id in cluster.call_network.brokers
        for _ in range(60):
            if not not_alike(hosts):
                return
            await cluster.call_network.clock.sleep(1)
        pytest.fail(str(not_alike(hosts)))
