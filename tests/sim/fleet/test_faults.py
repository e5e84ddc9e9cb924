from pathlib import Path

import pytest

from hawker.proof.violation import Invariant
from hawker.record.node import NODE
from hawker.sim.fleet.cluster import GossipingNode
from hawker.sim.fleet.faults import FleetFaults, Operator
from hawker.sim.fleet.plan import OPERATOR, WATCHED, FleetOperation, FleetVerb
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
