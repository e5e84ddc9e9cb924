from pathlib import Path

import anyio
import pytest

from hawker.sim.fleet.cluster import GossipingNode, address_of, inline
from tests.sim.fleet.clusters import cluster_of

pytestmark = pytest.mark.anyio


async def test_nodes_find_each_other_and_read_the_same_catalog(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as (cluster, hosts, _):
        await cluster.call_network.clock.sleep(5)
        for host in hosts:
            assert isinstance(host.node, GossipingNode)
            assert {member.node for member in host.node.gossip.members()} == {each.id for each in hosts}
            assert len(await host.node.fleet.nodes()) == 3


async def test_work_is_done_whole_also_when_it_is_cancelled() -> None:
    done = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await inline(lambda: done.append(1))
    assert done == [1]


def test_each_node_has_an_address(tmp_path: Path) -> None:
    assert address_of("00000001") != address_of("00000002")  # type: ignore[arg-type]
