"""A worker's spares in a fleet: what the catalog has and what others say, together, starts one."""

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.cluster import MEMBER_FATE, MemberFate, NodeParams
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, NoQuery
from hawker.cluster import found_cluster
from hawker.fleet.failover import Failover, catalog_sight
from hawker.fleet.membership import Fleet
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.up.fleet_wiring import failover_of
from tests.fleet.desk import OTHER, Crowd, Desk, Forgetful

pytestmark = pytest.mark.anyio

LOST = NodeId("0000000c")
WATCHED = "d0000000000001"


class Witness:
    """A fleet of three, in which one other node may be asked."""

    def __init__(self, worker: SimWorker) -> None:
        self.desk, self.crowd, self.says = Desk(), Crowd(worker.parts.node.id), "down"
        self.crowd.set(LOST, Fate.ALIVE)
        self.asked: list[tuple[NodeId, str]] = []
        handlers = Handlers()
        handlers.on(MEMBER_FATE, self._answer)
        self._caller = InProcessCaller(handlers, worker.parts.deps.clock, "spares")
        self.sentinel: Failover = failover_of(
            worker.parts, catalog_sight(worker.parts.node, self._fleet(worker), self.desk)
        )
        for node in (worker.parts.node.id, OTHER, LOST):
            self.desk.run("INSERT INTO nodes (node, region) VALUES (?, ?)", node, worker.parts.node.region)
        self.desk.run("INSERT INTO machines (node, id, app, state) VALUES (?, ?, ?, 'started')", LOST, WATCHED, APP)

    def _fleet(self, worker: SimWorker) -> Fleet:
        return Fleet(
            cluster=found_cluster(worker.parts.deps.clock, advertise="10.0.0.1", peer_port=4281),
            gossip=self.crowd,
            catalog=self.desk,
            forgets=Forgetful(),
            caller=self._call,
            clock=worker.parts.deps.clock,
            save=lambda cluster: None,
        )

    def _call(self, node_id: NodeId, behalf: str) -> Caller:
        self.asked.append((node_id, behalf))
        return self._caller

    async def _answer(self, call: Call[NodeParams, NoQuery, None]) -> MemberFate:
        assert call.params.node_id == LOST
        return MemberFate(fate=self.says)


async def test_a_spare_is_started_once_gossip_and_a_witness_agree(worker: SimWorker) -> None:
    fleet = Witness(worker)
    machine_id = await worker.stopped(standbys=(WATCHED,))
    await fleet.sentinel.look()
    assert fleet.asked == []
    fleet.crowd.set(LOST, Fate.DOWN)
    fleet.says = "alive"
    await fleet.sentinel.look()
    assert worker.record(machine_id).state is State.STOPPED
    assert fleet.asked == [(OTHER, "spares")]
    fleet.says = "down"
    await fleet.sentinel.look()
    await worker.reaches(machine_id, State.STARTED)
