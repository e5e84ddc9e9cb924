"""Network policies as records, and what they mean for each machine."""

from collections.abc import Mapping
from ipaddress import IPv4Address

import msgspec
import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.errors import NotFound, Unprocessable
from hawker.host.network_policy import FilteredPort, FilteredPorts
from hawker.netpolicy.policies import MAX_POLICIES, Policies, fence_of, fences, selects
from hawker.policy import Direction, Transport
from hawker.record.machine import MachineRecord
from hawker.record.network_policy import POLICIES, PolicyRecord, PolicyRule, PolicySelector, PortRule
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio
ALL = PolicySelector(all=True)


def allow(direction: str, *ports: int | None, protocol: str = "tcp") -> PolicyRule:
    listed = tuple(PortRule(protocol=Transport(protocol), port=port) for port in ports)
    return PolicyRule(direction=Direction(direction), ports=listed)


def everything(direction: str) -> PolicyRule:
    return PolicyRule(direction=Direction(direction))


def policy(*rules: PolicyRule, selector: PolicySelector = ALL) -> PolicyRecord:
    return PolicyRecord(id="p", name="p", selector=selector, rules=rules, created_at=0, updated_at=0)


def tcp(*ports: int) -> FilteredPorts:
    return frozenset(FilteredPort("tcp", port) for port in ports)


@pytest.fixture
async def record(worker: SimWorker) -> MachineRecord:
    return worker.record(await worker.started(metadata={"role": "web", "tier": "front"}))


@pytest.mark.parametrize(
    ("policies", "ingress", "egress"),
    [
        ([], None, None),
        ([policy(allow("ingress", 80))], tcp(80), None),
        ([policy(allow("egress", 443))], None, tcp(443)),
        ([policy(allow("ingress", 80), allow("egress"))], tcp(80), tcp()),
        ([policy(allow("ingress", 80)), policy(allow("ingress", 81))], tcp(80, 81), None),
        ([policy(allow("ingress", 80)), policy(everything("ingress"))], None, None),
        ([policy(allow("ingress")), policy(allow("egress", 80, None))], tcp(), tcp(80) | {FilteredPort("tcp", None)}),
        ([policy(allow("ingress", 53, protocol="udp"))], frozenset({FilteredPort("udp", 53)}), None),
        ([policy(allow("ingress", 80), selector=PolicySelector(metadata={"role": "db"}))], None, None),
    ],
)
async def test_a_machine_may_do_what_the_policies_that_select_it_allow_together(
    record: MachineRecord, policies: list[PolicyRecord], ingress: FilteredPorts | None, egress: FilteredPorts | None
) -> None:
    fence = fence_of(record, policies)
    assert (fence.ingress, fence.egress) == (ingress, egress)
    assert fence.machine_id == record.id and fence.ipv4 == IPv4Address(record.network.ipv4 or "")


@pytest.mark.parametrize(
    ("metadata", "answer"),
    [
        ({"role": "web"}, True),
        ({"role": "web", "tier": "front"}, True),
        ({"role": "web", "tier": "back"}, False),
        ({"other": "web"}, False),
        ({}, False),
    ],
)
async def test_a_selector_of_metadata_asks_for_all_of_its_pairs(
    record: MachineRecord, metadata: Mapping[str, str], answer: bool
) -> None:
    assert selects(PolicySelector(metadata=dict(metadata)), record) is answer


async def test_a_selector_of_machines_names_them(record: MachineRecord) -> None:
    assert selects(PolicySelector(machines=("00000000000000", record.id)), record)
    assert not selects(PolicySelector(machines=("00000000000000",)), record)
    assert not selects(PolicySelector(), record)


async def test_fences_are_of_machines_that_are_there_on_or_off_and_of_no_other_app(worker: SimWorker) -> None:
    await worker.app("other")
    on, off, gone = await worker.started(), await worker.stopped(), await worker.stopped()
    await worker.create(app="other")
    await worker.at_rest()
    policies = worker.parts.policies
    await policies.put(APP, policy_id=None, name="p", selector=ALL, rules=(allow("ingress", 80),))
    await worker.destroy(gone)
    assert {fence.machine_id for fence in fences(worker.store)} == {on, off}
    await worker.at_rest()
    assert {fence.machine_id for fence in fences(worker.store)} == {on, off}


async def test_a_policy_is_made_changed_and_removed(worker: SimWorker) -> None:
    policies = worker.parts.policies
    made = await policies.put(APP, policy_id=None, name="one", selector=ALL, rules=(allow("ingress", 80),))
    worker.parts.deps.clock.now()
    changed = await policies.put(APP, policy_id=made.id, name="two", selector=ALL, rules=(allow("egress", 81),))
    assert changed == msgspec.structs.replace(
        made, name="two", rules=(allow("egress", 81),), updated_at=changed.updated_at
    )
    assert policies.list(APP) == [changed] and policies.get(APP, made.id) == changed
    await policies.delete(APP, made.id)
    with pytest.raises(NotFound, match="network policy not found"):
        policies.get(APP, made.id)
    with pytest.raises(NotFound, match="network policy not found"):
        await policies.delete(APP, made.id)


async def test_a_policy_that_is_not_there_cannot_be_changed(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="network policy not found"):
        await worker.parts.policies.put(APP, policy_id="nope", name="p", selector=ALL, rules=())
    assert worker.parts.policies.list(APP) == []


async def test_nobody_has_policies_without_an_app(worker: SimWorker) -> None:
    policies = worker.parts.policies
    with pytest.raises(NotFound, match="app not found"):
        await policies.put("ghost", policy_id=None, name="p", selector=ALL, rules=())
    with pytest.raises(NotFound, match="app not found"):
        policies.get("ghost", "p")


async def test_an_app_has_a_bounded_number_and_takes_them_with_it(worker: SimWorker) -> None:
    policies = worker.parts.policies

    async def put(policies: Policies) -> PolicyRecord:
        return await policies.put(APP, policy_id=None, name="p", selector=ALL, rules=(allow("ingress", 80),))

    made = [await put(policies) for _ in range(MAX_POLICIES)]
    with pytest.raises(Unprocessable, match="at most 32"):
        await put(policies)
    await policies.put(APP, policy_id=made[0].id, name="q", selector=ALL, rules=(allow("ingress", 81),))
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert not list(worker.store.scan(POLICIES))
