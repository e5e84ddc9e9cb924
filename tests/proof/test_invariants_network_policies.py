"""What the host enforces against what the records say."""

import pytest

from hawker.host.network_policy import FilteredPort, PacketFilter
from hawker.ids import MachineId
from hawker.netpolicy.policies import wanted
from hawker.policy import Direction, Transport
from hawker.proof.invariants import policies_at_rest
from hawker.proof.violation import Invariant
from hawker.record.app import PolicyRule, PolicySelector, PortRule
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio
WEB = frozenset({FilteredPort("tcp", 80)})


@pytest.fixture
async def machine_id(worker: SimWorker) -> MachineId:
    rule = PolicyRule(direction=Direction.INGRESS, ports=(PortRule(protocol=Transport.TCP, port=80),))
    selector = PolicySelector(all=True)
    await worker.parts.policies.put(APP, policy_id=None, name="p", selector=selector, rules=(rule,))
    return MachineId(await worker.started())


async def test_a_host_that_does_what_the_records_say_is_well(worker: SimWorker, machine_id: MachineId) -> None:
    assert [fence.machine_id for fence in wanted(worker.store)] == [machine_id]
    assert not list(policies_at_rest(worker.store, wanted(worker.store)))


@pytest.mark.parametrize("wrong", ["missing", "too open", "another machine's"])
async def test_difference_of_policies_is_told_by_its_machine(
    worker: SimWorker, machine_id: MachineId, wrong: str
) -> None:
    standing = {
        "missing": [],
        "too open": [PacketFilter(machine_id, 7, ingress=WEB | {FilteredPort("tcp", 81)})],
        "another machine's": [PacketFilter(MachineId("00000000000001"), 7, ingress=WEB)],
    }[wrong]
    found = list(policies_at_rest(worker.store, standing))
    assert {each.invariant for each in found} == {Invariant.ENFORCED}
    assert machine_id in {each.about for each in found}
