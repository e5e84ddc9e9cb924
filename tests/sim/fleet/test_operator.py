from pathlib import Path

import pytest

from hawker.proof.violation import Invariant
from hawker.record.node import NODE
from hawker.sim.fleet.cluster import GossipingNode
from hawker.sim.fleet.operator import Operator
from hawker.sim.fleet.plan import OPERATOR, FleetOperation, FleetVerb
from tests.sim.fleet.clusters import cluster_of, ledger_of

pytestmark = pytest.mark.anyio


async def test_a_cordoned_node_is_looked_at_until_that_ends(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, _):
        ledger, clock = ledger_of(cluster), cluster.call_network.clock
        operator = Operator(cluster.call_network, hosts, ledger, clock)
        node = hosts[1].node
        assert node is not None
        await clock.sleep(5)
        await node.worker.app()
        await operator.work((FleetOperation(1, 0.1, OPERATOR, FleetVerb.CORDON, nodes=(0, 1)),), clock.monotonic())
        assert set(ledger.cordoned) == {hosts[1].id} and ledger.found == []
        await node.worker.store.write(lambda tx: tx.put(NODE, "self", node.worker.parts.node))
        await node.worker.started()  # past what asks whether it is cordoned
        operator.look()
        assert [each.invariant for each in ledger.found] == [Invariant.CORDONED]
        await operator.work((FleetOperation(2, 0.1, OPERATOR, FleetVerb.UNCORDON, nodes=(0, 1)),), clock.monotonic())
        assert ledger.cordoned == {}


async def test_a_cordon_outlives_the_daemon_and_who_is_away_is_forgotten(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as (cluster, hosts, tasks):
        ledger, clock = ledger_of(cluster), cluster.call_network.clock
        operator = Operator(cluster.call_network, hosts, ledger, clock)
        await clock.sleep(5)
        await operator.work((FleetOperation(1, 0.1, OPERATOR, FleetVerb.DRAIN, nodes=(0, 2)),), clock.monotonic())
        await hosts[2].kill()
        await clock.sleep(30)
        await operator.work((FleetOperation(2, 0.1, OPERATOR, FleetVerb.FORGET, nodes=(0, 1)),), clock.monotonic())
        first = hosts[0].node
        assert isinstance(first, GossipingNode) and hosts[2].id not in {node.id for node in await first.fleet.nodes()}
        await hosts[2].begin(tasks)
        record = hosts[2].place.store.get(NODE, "self")
        assert record is not None and record.draining
