from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from hawker.api.caller import Caller
from hawker.api.contract.cluster import (
    ADD_KEY,
    CORDON_NODE,
    DRAIN_NODE,
    FORGET_NODE,
    GET_NODE,
    JOIN_CLUSTER,
    LIST_KEYS,
    LIST_NODES,
    MEMBER_FATE,
    REMOVE_KEY,
    UNCORDON_NODE,
    USE_KEY,
    AddKeyRequest,
    FleetNode,
    ForgetQuery,
    KeyParams,
    NodeParams,
)
from hawker.api.contract.node import LIST_FINDINGS, METRICS, REPAIR_FINDINGS, RepairRequest
from hawker.api.grant import Everything, Grant
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, NoParams, NoQuery
from hawker.cluster import Cluster, found_cluster
from hawker.errors import BadRequest, Conflict, Forbidden, NotFound, Unavailable, WrongState
from hawker.fleet.handlers import ClusterHandlers
from hawker.fleet.membership import Fleet
from hawker.gossip.contract import Fate
from hawker.handlers.assembly import node_info_of
from hawker.ids import NodeId
from hawker.permission import Attempt
from hawker.record.node import NODE
from hawker.sim.node.sim_worker import SimWorker
from hawker.up.wiring import node_handlers
from tests.fleet.desk import OTHER, Crowd, Desk, Forgetful

pytestmark = pytest.mark.anyio


def me(worker: SimWorker) -> NodeParams:
    return NodeParams(node_id=worker.parts.node.id)


async def test_a_node_that_is_alone_is_the_one_there_is(worker: SimWorker) -> None:
    await worker.started()
    (node,) = (await worker.api.call(LIST_NODES)).nodes
    assert (node.id, node.state, node.cordoned, node.machines) == (worker.parts.node.id, "alive", False, 1)
    assert node.used is not None and node.used.memory_mb > 0
    got = await worker.api.call(GET_NODE, params=me(worker))
    assert got.info is not None and got.info.id == node.id
    with pytest.raises(NotFound, match="there is no node 'ffffffff'; this one is alone"):
        await worker.api.call(GET_NODE, params=NodeParams(node_id="ffffffff"))
    with pytest.raises(NotFound, match="this one is alone"):
        await worker.api.call(CORDON_NODE, params=NodeParams(node_id="ffffffff"))


async def test_a_node_that_is_alone_says_how_to_begin_a_cluster(worker: SimWorker) -> None:
    for call in (
        worker.api.call(JOIN_CLUSTER),
        worker.api.call(LIST_KEYS),
        worker.api.call(FORGET_NODE, params=NodeParams(node_id=OTHER)),
    ):
        with pytest.raises(WrongState, match="in no cluster: start it with `hawker up --advertise HOST`"):
            await call


async def test_a_cordon_is_durable(worker: SimWorker) -> None:
    assert (await worker.api.call(CORDON_NODE, params=me(worker))).cordoned
    record = worker.parts.deps.store.get(NODE, "self")
    assert record is not None and record.cordoned and record.region == worker.parts.node.region
    assert (await worker.api.call(LIST_NODES)).nodes[0].cordoned
    assert not (await worker.api.call(UNCORDON_NODE, params=me(worker))).cordoned
    record = worker.parts.deps.store.get(NODE, "self")
    assert record is not None and not record.cordoned


class Fair:
    """A worker in a fleet of two. The other one answers with its own handlers, unless it is away."""

    def __init__(self, worker: SimWorker) -> None:
        self.desk, self.forgetful = Desk(), Forgetful()
        self.crowd = Crowd(worker.parts.node.id)
        self.saved: list[Cluster] = []
        self.away = False
        self.of_agent: list[str] = []  # what is wrong with an agent that keeps the catalog
        self._other = InProcessCaller(self._handlers_of_other(worker), worker.parts.deps.clock, "ann")
        fleet = Fleet(
            cluster=found_cluster(worker.parts.deps.clock, advertise="10.0.0.1", peer_port=4281),
            gossip=self.crowd,
            catalog=self.desk,
            forgets=self.forgetful,
            caller=self._caller,
            clock=worker.parts.deps.clock,
            save=self.saved.append,
        )
        self.handlers = node_handlers(worker.parts, fleet=fleet, catalog=self.desk, agent_findings=self._findings)
        self.api = InProcessCaller(self.handlers, worker.parts.deps.clock, "ann")

    async def _findings(self) -> Sequence[str]:
        return self.of_agent

    def _handlers_of_other(self, worker: SimWorker) -> Handlers:
        node = msgspec.structs.replace(worker.parts.node, id=OTHER)
        return node_handlers(replace(worker.parts, node=node))

    def _caller(self, node_id: NodeId, behalf: str) -> Caller:
        assert node_id == OTHER and behalf == "ann"
        if self.away:
            raise Unavailable("nobody knows where it is")
        return self._other

    async def states(self) -> Sequence[tuple[str, str]]:
        return [(node.id, node.state) for node in (await self.api.call(LIST_NODES)).nodes]


@pytest.fixture
def fair(worker: SimWorker) -> Fair:
    return Fair(worker)


async def test_nodes_are_those_of_the_catalog_and_of_gossip(fair: Fair, worker: SimWorker) -> None:
    fair.desk.run("INSERT INTO nodes (node, region) VALUES ('0000000c', 'mad')")
    found = (await fair.api.call(LIST_NODES)).nodes
    assert {node.id: node.state for node in found} == {
        worker.parts.node.id: "alive",
        OTHER: "alive",
        "0000000c": "down",
    }


async def test_a_node_is_shown_with_what_it_says_itself(fair: Fair) -> None:
    got = await fair.api.call(GET_NODE, params=NodeParams(node_id=OTHER))
    assert got.info is not None and got.info.id == OTHER
    fair.away = True
    assert (await fair.api.call(GET_NODE, params=NodeParams(node_id=OTHER))).info is None
    with pytest.raises(NotFound, match="there is no node 'ffffffff': see `hawker node list`"):
        await fair.api.call(GET_NODE, params=NodeParams(node_id="ffffffff"))


async def test_another_node_is_cordoned_by_itself(fair: Fair) -> None:
    answer: FleetNode = await fair.api.call(CORDON_NODE, params=NodeParams(node_id=OTHER))
    assert answer.cordoned
    assert not (await fair.api.call(UNCORDON_NODE, params=NodeParams(node_id=OTHER))).cordoned
    fair.away = True
    with pytest.raises(Unavailable):
        await fair.api.call(CORDON_NODE, params=NodeParams(node_id=OTHER))


async def test_a_joining_node_is_given_keys_and_the_living(fair: Fair, worker: SimWorker) -> None:
    answer = await fair.api.call(JOIN_CLUSTER)
    assert [peer.node for peer in answer.peers] == [worker.parts.node.id, OTHER]
    assert answer.keys == {"1": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="} and answer.primary == 1
    fair.crowd.set(OTHER, Fate.DOWN)
    assert [peer.node for peer in (await fair.api.call(JOIN_CLUSTER)).peers] == [worker.parts.node.id]


class Named:
    """A grant that may do all, of a token that was made from the root token and calls itself root."""

    name = "root"
    root = False
    token_ids = ()

    def check(self, attempt: Attempt) -> None:
        return None

    def permits(self, attempt: Attempt) -> bool:
        return True


async def test_only_the_root_token_is_given_keys(fair: Fair, worker: SimWorker) -> None:
    parts = worker.parts
    handlers = ClusterHandlers(parts.node, parts.deps.store, {}, node_info_of(parts), None)

    def call(grant: Grant) -> "Call[NoParams, NoQuery, AddKeyRequest]":
        return Call(params=NoParams(), query=NoQuery(), body=AddKeyRequest(), grant=grant, request_id="")

    with pytest.raises(Forbidden, match="only the root token"):
        await handlers.add_key(call(Named()))
    with pytest.raises(WrongState, match="in no cluster"):
        await handlers.add_key(call(Everything("root")))


async def test_a_living_node_is_forgotten_only_by_force(fair: Fair, worker: SimWorker) -> None:
    with pytest.raises(WrongState, match=f"node {OTHER} is alive: stop it first, or forget it with --force"):
        await fair.api.call(FORGET_NODE, params=NodeParams(node_id=OTHER))
    with pytest.raises(WrongState, match="ask another one"):
        await fair.api.call(FORGET_NODE, params=me(worker))
    fair.crowd.set(OTHER, Fate.DOWN)
    answer = await fair.api.call(FORGET_NODE, params=NodeParams(node_id=OTHER))
    assert (answer.node, answer.epoch) == (OTHER, 7)
    assert fair.forgetful.forgotten == [OTHER] and fair.crowd.fences == {OTHER: 7}
    fair.crowd.set(OTHER, Fate.ALIVE)
    await fair.api.call(FORGET_NODE, params=NodeParams(node_id=OTHER), query=ForgetQuery(force=True))
    assert fair.forgetful.forgotten == [OTHER, OTHER]


async def test_keys_are_rotated_in_three_steps(fair: Fair) -> None:
    added = await fair.api.call(ADD_KEY)
    assert [(key.number, key.primary) for key in added.keys] == [(1, True), (2, False)] and added.version == 2
    assert fair.saved[-1].keyring.version == 2
    used = await fair.api.call(USE_KEY, params=KeyParams(number="2"))
    assert [(key.number, key.primary) for key in used.keys] == [(1, False), (2, True)]
    left = await fair.api.call(REMOVE_KEY, params=KeyParams(number="1"))
    assert [key.number for key in left.keys] == [2]
    assert fair.crowd.keyring.version == fair.saved[-1].keyring.version == left.version == 4
    assert await fair.api.call(LIST_KEYS) == left


async def test_a_key_that_somebody_lacks_is_not_used_yet(fair: Fair) -> None:
    await fair.api.call(ADD_KEY)
    fair.crowd.without_keys = [OTHER]
    assert (await fair.api.call(LIST_KEYS)).missing_at == (OTHER,)
    for call in (USE_KEY, REMOVE_KEY):
        with pytest.raises(Conflict, match=f"do not have the keyring's last change yet: {OTHER}"):
            await fair.api.call(call, params=KeyParams(number="2"))


async def test_a_key_that_is_none_is_refused(fair: Fair) -> None:
    for key in ("nonsense", "ä", "c2hvcnQ="):
        with pytest.raises(BadRequest):
            await fair.api.call(ADD_KEY, body=AddKeyRequest(key=key))
    with pytest.raises(BadRequest, match="no key 9"):
        await fair.api.call(USE_KEY, params=KeyParams(number="9"))
    with pytest.raises(NotFound, match="there is no key 'one'"):
        await fair.api.call(USE_KEY, params=KeyParams(number="one"))


async def test_a_node_that_is_drained_says_what_is_on_it_until_it_is_uncordoned(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    answer = await worker.api.call(DRAIN_NODE, params=me(worker))
    assert (answer.node.cordoned, answer.node.draining) == (True, True)
    assert [(each.app, each.id) for each in answer.machines] == [("stall", machine_id)]
    again = await worker.api.call(DRAIN_NODE, params=me(worker))
    assert again.machines == answer.machines
    node = await worker.api.call(UNCORDON_NODE, params=me(worker))
    assert (node.cordoned, node.draining) == (False, False)


async def test_a_witness_says_what_it_believes(fair: Fair) -> None:
    fair.crowd.set(OTHER, Fate.DOWN)
    assert (await fair.api.call(MEMBER_FATE, params=NodeParams(node_id=OTHER))).fate == "down"
    assert (await fair.api.call(MEMBER_FATE, params=NodeParams(node_id="ffffffff"))).fate == "unknown"


async def test_a_wrong_clock_is_told_and_left_alone(fair: Fair) -> None:
    assert (await fair.api.call(LIST_FINDINGS)).findings == ()
    fair.crowd.skew_s = -86_400.0
    (finding,) = (await fair.api.call(LIST_FINDINGS)).findings
    assert (finding.kind, finding.about, finding.by) == ("wrong clock", OTHER, "nobody")
    assert finding.detail == "its clock is 86400 s behind this node's, or this node's is wrong"
    (finding,) = (await fair.api.call(REPAIR_FINDINGS, body=RepairRequest())).findings
    assert (finding.about, finding.outcome) == (OTHER, "left")
    other = next(node for node in (await fair.api.call(LIST_NODES)).nodes if node.id == OTHER)
    assert other.clock_ahead_s == -86_400.0


async def test_the_fleet_is_measured(fair: Fair) -> None:
    fair.crowd.set(OTHER, Fate.DOWN)
    text = await fair.api.call(METRICS)
    assert 'hawker_fleet_nodes{fate="alive"} 1.0' in text and 'hawker_fleet_nodes{fate="down"} 1.0' in text


async def test_nodes_are_known_while_the_catalog_is_away(fair: Fair, worker: SimWorker) -> None:
    fair.desk.away = True
    assert dict(await fair.states()) == {worker.parts.node.id: "alive", OTHER: "alive"}


async def test_an_error_of_the_catalogs_agent_is_told_and_left_alone(fair: Fair) -> None:
    fair.of_agent = ["it lacks a table"]
    (finding,) = (await fair.api.call(LIST_FINDINGS)).findings
    assert (finding.kind, finding.about, finding.detail) == ("catalog agent", "catalog", "it lacks a table")
    assert (finding.by, "docs/cluster.md" in finding.repair) == ("nobody", True)
    (finding,) = (await fair.api.call(REPAIR_FINDINGS, body=RepairRequest())).findings
    assert finding.outcome == "left"
