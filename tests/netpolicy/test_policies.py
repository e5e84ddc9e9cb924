"""Network policies as records, and what they mean for each machine."""

from collections.abc import Mapping
from ipaddress import IPv4Address

import msgspec
import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.api.contract.network_policy import PUT_POLICY, NetworkPolicyRequest, PolicyPort, Rule, Selector
from hawker.errors import NotFound, Unprocessable
from hawker.host.network_policy import FilteredPort, FilteredPorts
from hawker.ids import MachineId
from hawker.machine import State
from hawker.netpolicy.policies import (
    MAX_POLICIES,
    Policies,
    PolicyEnforcer,
    packet_filter_of,
    packet_filters,
    selects,
    wanted,
)
from hawker.policy import Direction, Transport
from hawker.record.app import POLICIES, PolicyRecord, PolicyRule, PolicySelector, PortRule
from hawker.record.machine import MachineRecord
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.reconcile import Kind

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
    each = packet_filter_of(record, policies)
    assert (each.ingress, each.egress) == (ingress, egress)
    assert each.machine_id == record.id and each.ipv4 == IPv4Address(record.network.ipv4 or "")


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


async def test_filters_are_of_machines_that_are_there_on_or_off_and_of_no_other_app(worker: SimWorker) -> None:
    await worker.app("other")
    on, off, gone = await worker.started(), await worker.stopped(), await worker.stopped()
    await worker.create(app="other")
    await worker.at_rest()
    policies = worker.parts.policies
    await policies.put(APP, policy_id=None, name="p", selector=ALL, rules=(allow("ingress", 80),))
    await worker.destroy(gone)
    assert {each.machine_id for each in packet_filters(worker.store)} == {on, off}
    await worker.at_rest()
    assert {each.machine_id for each in packet_filters(worker.store)} == {on, off}


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


HERE = AppParams(app_name=APP)


async def put(worker: SimWorker, selector: Selector, port: int = 80) -> str:
    rule = Rule(action="allow", direction=Direction.INGRESS, ports=(PolicyPort(protocol=Transport.TCP, port=port),))
    body = NetworkPolicyRequest(name="p", selector=selector, allowed=(rule,))
    return (await worker.api.call(PUT_POLICY, params=HERE, body=body)).id


def standing(stall: MemoryWorld) -> set[str]:
    """Whom the host has a filter for."""
    return {each.machine_id for each in stall.policies.standing}


def as_recorded(worker: SimWorker, stall: MemoryWorld) -> bool:
    return stall.policies.standing == tuple(wanted(worker.store))


async def test_a_filter_stands_before_its_machine_starts_and_goes_with_it(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    await put(worker, Selector(all=True))
    machine_id = (await worker.create()).id
    await worker.at_rest()
    assert standing(stall) == {machine_id} and as_recorded(worker, stall)
    await worker.stop(machine_id)
    await worker.at_rest()
    assert standing(stall) == {machine_id}
    await worker.destroy(machine_id)
    await worker.at_rest()
    assert standing(stall) == set() and as_recorded(worker, stall)


async def test_a_machine_whose_filter_cannot_be_raised_does_not_start(worker: SimWorker, stall: MemoryWorld) -> None:
    await put(worker, Selector(all=True))
    stall.policies.broken = 1000
    machine = await worker.create()
    await worker.at_rest()
    assert "launch/launch_failed" in worker.events(machine.id) and "start/started" not in worker.events(machine.id)
    assert not stall.host.look(MachineId(machine.id)) and standing(stall) == set()


async def test_a_machine_is_destroyed_even_when_the_host_refuses(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(all=True))
    stall.policies.broken = 1
    await worker.destroy(machine_id, force=True)
    await worker.at_rest()
    assert standing(stall) == {machine_id}
    await worker.reconciler.once()
    assert standing(stall) == set()


async def test_metadata_that_selects_a_machine_raises_its_filter_and_takes_it_down(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(metadata={"role": "db"}))
    assert standing(stall) == set()
    await worker.set_metadata(machine_id, "role", "db")
    assert standing(stall) == {machine_id}
    await worker.set_metadata(machine_id, "role", "web")
    assert standing(stall) == set()


async def test_an_update_that_changes_metadata_does_so_too(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(metadata={"role": "db"}))
    await worker.update(machine_id, metadata={"role": "db"})
    await worker.at_rest()
    assert standing(stall) == {machine_id}


async def test_a_lost_rule_is_found_and_raised_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(all=True))
    assert Kind.LOST_POLICIES not in [each.kind for each in await worker.reconciler.find()]
    stall.policies.standing = ()
    assert [each.kind for each in await worker.reconciler.once()] == [Kind.LOST_POLICIES]
    assert standing(stall) == {machine_id} and not await worker.reconciler.find()


async def test_metadata_is_changed_even_when_the_host_refuses_and_the_reconciler_comes_back(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(metadata={"role": "db"}))
    stall.policies.broken = 1
    await worker.set_metadata(machine_id, "role", "db")
    assert standing(stall) == set()
    await worker.reconciler.once()
    assert standing(stall) == {machine_id}


async def test_a_daemon_that_dies_before_a_policy_is_in_force_leaves_it_to_the_next_one(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        rule = PolicyRule(direction=Direction.INGRESS, ports=(PortRule(protocol=Transport.TCP, port=80),))
        selector = PolicySelector(all=True)
        await worker.parts.policies.put(APP, policy_id=None, name="p", selector=selector, rules=(rule,))
        assert standing(stall) == set()
    async with stall.open() as worker:
        await worker.reconciler.once()
        assert standing(stall) == {machine_id}


async def test_filters_of_an_earlier_life_are_taken_down(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        await worker.started()
        policy_id = await put(worker, Selector(all=True))
        await worker.parts.policies.delete(APP, policy_id)
        assert standing(stall)
    async with stall.open() as worker:
        await worker.reconciler.once()
        assert standing(stall) == set()


async def test_after_a_reboot_the_machine_that_is_started_again_has_its_filter(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "always"})
        await put(worker, Selector(all=True))
    stall.reboot()
    assert standing(stall) == set()
    async with stall.open() as worker:
        await eventually(stall.clock, lambda: worker.events(machine_id).count("start/started") == 2, 600)
        assert standing(stall) == {machine_id}


async def test_nothing_is_asked_of_the_host_where_nobody_has_a_policy(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.policies.broken = 1
    await worker.destroy(await worker.started(), force=True)
    await worker.at_rest()
    assert stall.policies.broken == 1


async def test_a_change_that_changes_no_filter_touches_nothing(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(all=True))
    raised = stall.policies.raised
    await worker.set_metadata(machine_id, "role", "web")
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert stall.policies.raised == raised


async def test_a_driver_without_a_network_has_no_filters(worker: SimWorker) -> None:
    enforcer = PolicyEnforcer(worker.store, None)
    assert "driver" in await enforcer.refusal() and await enforcer.stand()
    await enforcer.renew()
