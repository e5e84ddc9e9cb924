from pathlib import Path

import pytest

from hawker.ids import MachineId
from hawker.proof.fleet import Promised
from hawker.proof.violation import Invariant
from hawker.record.node import TAKEOVERS, TakeoverRecord
from hawker.sim.fleet.checks import judged
from tests.sim.fleet.clusters import cluster_of

pytestmark = pytest.mark.anyio


async def test_a_fleet_at_rest_is_sound_and_what_is_missing_is_found(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, _):
        node = hosts[0].node
        assert node is not None
        await node.worker.app()
        machine = await node.worker.started()
        await cluster.call_network.clock.sleep(20)
        assert judged(hosts, [Promised(order="a", machine=MachineId(machine))]) == []
        gone = judged(hosts, [Promised(order="b", machine=MachineId("0" * 14))])
        assert [each.invariant for each in gone] == [Invariant.KEPT]

        took = TakeoverRecord(
            machine=MachineId(machine), spare=MachineId("1" * 14), owner=hosts[0].id, seen=9.0, at=9.0
        )
        store = hosts[1].place.store
        await store.write(lambda tx: tx.put(TAKEOVERS, "x", took))
        assert Invariant.ONE_INSTANCE in {each.invariant for each in judged(hosts, [])}
