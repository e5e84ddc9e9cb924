"""What network policies say is in force, whatever comes in between."""

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.network_policy import PUT_POLICY, NetworkPolicyRequest, PolicyPort, Rule, Selector
from hawker.ids import MachineId
from hawker.machine import State
from hawker.netpolicy.enforcement import Fences, wanted
from hawker.policy import Direction, Transport
from hawker.record.network_policy import PolicyRule, PolicySelector, PortRule
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.reconcile import Kind

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)


async def put(worker: SimWorker, selector: Selector, port: int = 80) -> str:
    rule = Rule(action="allow", direction=Direction.INGRESS, ports=(PolicyPort(protocol=Transport.TCP, port=port),))
    body = NetworkPolicyRequest(name="p", selector=selector, allowed=(rule,))
    return (await worker.api.call(PUT_POLICY, params=HERE, body=body)).id


def standing(stall: MemoryWorld) -> set[str]:
    """Whom the host has a fence for."""
    return {fence.machine_id for fence in stall.policies.standing}


def as_recorded(worker: SimWorker, stall: MemoryWorld) -> bool:
    return stall.policies.standing == tuple(wanted(worker.store))


async def test_a_fence_stands_before_its_machine_starts_and_goes_with_it(worker: SimWorker, stall: MemoryWorld) -> None:
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


async def test_a_machine_whose_fence_cannot_be_raised_does_not_start(worker: SimWorker, stall: MemoryWorld) -> None:
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


async def test_metadata_that_selects_a_machine_raises_its_fence_and_takes_it_down(
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


async def test_what_is_lost_is_found_and_raised_again(worker: SimWorker, stall: MemoryWorld) -> None:
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


async def test_fences_of_an_earlier_life_are_taken_down(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        await worker.started()
        policy_id = await put(worker, Selector(all=True))
        await worker.parts.policies.delete(APP, policy_id)
        assert standing(stall)
    async with stall.open() as worker:
        await worker.reconciler.once()
        assert standing(stall) == set()


async def test_after_a_reboot_the_machine_that_is_started_again_has_its_fence(stall: MemoryWorld) -> None:
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


async def test_a_change_that_changes_no_fence_touches_nothing(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await put(worker, Selector(all=True))
    raised = stall.policies.raised
    await worker.set_metadata(machine_id, "role", "web")
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert stall.policies.raised == raised


async def test_a_driver_without_a_network_has_no_fences(worker: SimWorker) -> None:
    fences = Fences(worker.store, None)
    assert "driver" in await fences.refusal() and await fences.stand()
    await fences.renew()
