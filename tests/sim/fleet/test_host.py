from pathlib import Path

import pytest

from hawker.api.contract.machine import GET_MACHINE, MachineParams
from hawker.errors import NotFound
from hawker.machine import State
from hawker.node import Capacity, Resources
from hawker.proof.violation import Invariant
from hawker.sim.fleet.checks import not_alike
from hawker.sim.fleet.cluster import SOUND_FLEET
from hawker.sim.fleet.host import LightWorld
from hawker.sim.fleet.plan import BROKERS, draw
from hawker.sim.fleet.planted import PLANTS
from hawker.sim.fleet.simulation import play
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.node.fake_host import FakeRegistry
from hawker.store.memory_store import MemoryStore
from tests.sim.fleet.clusters import cluster_of

pytestmark = pytest.mark.anyio


async def test_a_host_lives_dies_stops_and_comes_back_as_the_same_node(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as (cluster, hosts, tasks):
        first = hosts[0]
        for end in (first.kill, first.stop):
            await end()
            assert first.node is None and first.id not in cluster.call_network.peers
            await first.begin(tasks)
        await first.kill(power=True)
        await first.begin(tasks)
        assert (first.lives, first.kills) == (4, 2) and first.id in cluster.call_network.brokers
        for _ in range(60):
            if not not_alike(hosts):
                return
            await cluster.call_network.clock.sleep(1)
        pytest.fail(str(not_alike(hosts)))


async def test_each_operation_is_over_when_it_is_answered_and_room_is_counted() -> None:
    room = Capacity(cpus=4, memory_mib=1024, disk_mib=10_000)
    place = LightWorld(MemoryStore(), Path("node"), room=room)
    place.registry = FakeRegistry()
    async with place.open() as worker:
        table, store = worker.parts.deps.table, worker.store
        await worker.app()
        machine = (await worker.create()).id
        assert worker.machines()[0].state is State.STARTED and table.used(store).memory_mib > 0
        await worker.stop(machine)
        assert worker.machines()[0].state is State.STOPPED and table.used(store) == Resources()
        await worker.start(machine)
        assert worker.machines()[0].state is State.STARTED
        await worker.destroy(machine, force=True)
        assert worker.machines() == [] and table.used(store) == Resources()
        with pytest.raises(NotFound):
            await worker.api.call(GET_MACHINE, params=MachineParams(app_name="nothing", machine_id=machine))
        await worker.create(order={"skip_launch": True})
        assert worker.machines()[0].state is State.STOPPED


@pytest.mark.parametrize("seed", [1, 3])
def test_nothing_is_found_in_a_sound_fleet_and_a_seed_repeats_it(seed: int) -> None:
    outcome = play(draw(seed, 0.3, 5, light=True))
    assert outcome.found == () and outcome.filled > 2 and outcome.kills > 0
    assert play(draw(seed, 0.3, 5, light=True)).digest == outcome.digest


def test_a_large_one_has_more_clients_and_brokers_at_its_first_nodes() -> None:
    plan = draw(1, 0.2, 100, light=True)
    assert len(plan.clients) == 4 and plan.regions == 1
    assert {number for operation in plan.operations if operation.label for number in operation.nodes} <= set(
        range(BROKERS)
    )


def test_a_planted_bug_is_found() -> None:
    for seed in range(2, 12):
        found = play(draw(seed, 0.6, 5, light=True), kit_of(PLANTS, "no-cancel", SOUND_FLEET)).found
        if Invariant.FILLED_ONCE in {each.invariant for each in found}:
            return
    pytest.fail("it was not found in ten seeds")
