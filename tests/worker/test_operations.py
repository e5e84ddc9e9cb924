from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.api.contract.machine_operation import CORDON_MACHINE, CREATE_LEASE, UNCORDON_MACHINE
from hawker.errors import AlreadyExists, LeaseHeld, NoRoom, NotFound, Unavailable, Unprocessable
from hawker.fsm.runner import Runner
from hawker.ids import AppName, RunId
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineTarget
from hawker.sim.node.kit import SOUND
from hawker.sim.node.sim_worker import APP, SimWorker, params
from hawker.sim.node.world import MemoryWorld
from hawker.worker import leases
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.operations import ConfigChange
from tests.worker.invariants import check_at_rest, check_store

pytestmark = pytest.mark.anyio
HALF = {"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}


async def test_the_same_order_is_the_same_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    first = await worker.create(key="order")
    again = await worker.create(key="order")
    other = await worker.create(key="another order")
    assert first.id == again.id != other.id
    await worker.destroy(first.id, force=True)
    await worker.reaches(first.id, State.DESTROYED)
    assert (await worker.create(key="order")).state is State.DESTROYED, "an order is filled once"
    await worker.at_rest()
    check_at_rest(stall)


async def test_a_spare_of_another_apps_machine_is_refused(worker: SimWorker) -> None:
    await worker.app("beta")
    theirs = await worker.create(app="beta")
    with pytest.raises(Unprocessable, match=rf"standbys\[0\]: machine {theirs.id} is not one of app 'stall'"):
        await worker.create(standbys=(theirs.id,))
    own = await worker.stopped()
    with pytest.raises(Unprocessable, match="is not one of app"):
        await worker.update(own, standbys=(theirs.id,))
    assert worker.record((await worker.create(standbys=(own,))).id).config.standbys == (own,)


async def test_orders_that_come_at_once_are_one_machine(worker: SimWorker) -> None:
    made = []

    async def order() -> None:
        made.append((await worker.create(key="order")).id)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(order)
    assert len(set(made)) == len(worker.machines()) == 1


async def test_a_replay_needs_neither_the_registry_nor_room(worker: SimWorker) -> None:
    first = await worker.create(key="order", guest={**HALF, "memory_mb": 1024})
    again = await worker.create(key="order", image="nosuch.invalid/image", guest={**HALF, "memory_mb": 1024})
    assert first.id == again.id


async def test_an_order_is_known_to_its_own_app_only(worker: SimWorker) -> None:
    await worker.app("other")
    mine = await worker.create(key="order")
    theirs = await worker.create(app="other", key="order")
    assert mine.id != theirs.id


async def test_a_name_is_taken_until_its_machine_is_gone(worker: SimWorker) -> None:
    machine = await worker.create(order={"name": "web"})
    with pytest.raises(AlreadyExists, match="unique machine name violation"):
        await worker.create(order={"name": "web"})
    await worker.destroy(machine.id, force=True)
    await worker.reaches(machine.id, State.DESTROYED)
    await worker.create(order={"name": "web"})


async def test_an_order_that_does_not_fit_says_what_is_missing(worker: SimWorker, stall: MemoryWorld) -> None:
    await worker.create(guest={**HALF, "memory_mb": 768})
    with pytest.raises(NoRoom, match="could not find a candidate host") as refusal:
        await worker.create(guest=HALF)
    assert (refusal.value.scope, refusal.value.shortfall) == ("region", {"memory_mb": 256})
    assert len(worker.machines()) == 1
    check_store(stall.store)


async def test_an_order_for_another_region_names_the_nearest(worker: SimWorker) -> None:
    with pytest.raises(NoRoom) as refusal:
        await worker.create(order={"region": "ams"})
    assert (refusal.value.scope, refusal.value.nearest) == ("region", "local")
    assert (await worker.create(order={"region": "ams,local"})).region == "local"


async def test_machines_that_are_off_take_no_room(worker: SimWorker, stall: MemoryWorld) -> None:
    for _ in range(4):
        await worker.stopped(guest=HALF)
    await worker.started(guest=HALF)
    check_at_rest(stall)


GUARDED: dict[str, Callable[[SimWorker, str, str | None], Awaitable[object]]] = {
    "start": lambda worker, machine_id, nonce: worker.start(machine_id, nonce),
    "stop": lambda worker, machine_id, nonce: worker.stop(machine_id, nonce),
    "restart": lambda worker, machine_id, nonce: worker.restart(machine_id, nonce),
    "update": lambda worker, machine_id, nonce: worker.update(machine_id, nonce=nonce),
    "destroy": lambda worker, machine_id, nonce: worker.destroy(machine_id, force=True, nonce=nonce),
    "cordon": lambda worker, machine_id, nonce: worker.api.call(CORDON_MACHINE, params=params(machine_id), nonce=nonce),
    "uncordon": lambda worker, machine_id, nonce: worker.api.call(
        UNCORDON_MACHINE, params=params(machine_id), nonce=nonce
    ),
}


@pytest.mark.parametrize("call", GUARDED.values(), ids=GUARDED.keys())
async def test_a_lease_guards_every_call_that_changes_a_machine(
    worker: SimWorker, call: Callable[[SimWorker, str, str | None], Awaitable[object]]
) -> None:
    machine_id = await worker.started()
    lease = await worker.api.call(CREATE_LEASE, params=params(machine_id))
    before = worker.record(machine_id)
    for nonce in (None, "wrong"):
        with pytest.raises(LeaseHeld, match="lease currently held by"):
            await call(worker, machine_id, nonce)
    assert worker.record(machine_id) == before
    await call(worker, machine_id, lease.nonce)


async def test_cordon_is_shown_and_brings_no_destroyed_machine_back(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.api.call(CORDON_MACHINE, params=params(machine_id))
    assert (await worker.get(machine_id)).cordoned
    await worker.api.call(UNCORDON_MACHINE, params=params(machine_id))
    assert not (await worker.get(machine_id)).cordoned
    await worker.destroy(machine_id, force=True)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(CORDON_MACHINE, params=params(machine_id))
    assert worker.store.count(MACHINES) == 0


async def test_a_machine_of_another_app_is_not_found(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.app("other")
    target = MachineTarget(AppName("other"), machine_id, None)
    with pytest.raises(NotFound, match="machine not found"):
        await worker.parts.operations.stop(target, signal=None, timeout_s=None)


class Helpless(Runner[FlowDeps]):
    """Cannot cancel, as when the disk fills up right after an operation was promised."""

    async def cancel(self, run_id: RunId, reason: str) -> None:
        raise Unavailable("the store cannot be used now: database or disk is full")


async def test_a_promise_is_answered_although_nothing_can_be_overtaken(tmp_path: Path) -> None:
    stall = MemoryWorld(tmp_path, kit=replace(SOUND, runner=Helpless))
    image = stall.hold()
    async with stall.open() as worker:
        await worker.app()
        machine = await worker.create()
        await worker.destroy(machine.id, force=True)
        assert worker.record(machine.id).state is State.DESTROYING
        image.set()
        await worker.reaches(machine.id, State.DESTROYED)
        await worker.at_rest()
        check_at_rest(stall)


async def test_an_update_and_the_lease_that_it_takes_are_promised_together(worker: SimWorker) -> None:
    machine_id = await worker.started()
    before, clock = worker.record(machine_id), worker.parts.deps.clock
    lease = leases.new(clock, "ann", "", 60)
    change = ConfigChange(before.config, before.image, launch=True, current_version=None, lease=lease)
    target = MachineTarget(AppName(APP), machine_id, None)
    assert (await worker.parts.operations.update(target, change)).lease == lease
    await worker.reaches(machine_id, State.STARTED)
    with pytest.raises(LeaseHeld):
        await worker.parts.operations.update(target, change)
    held = replace(target, nonce=lease.nonce)
    later = await worker.parts.operations.update(held, replace(change, lease=leases.new(clock, "ann", "", 90)))
    assert later.lease is not None and later.lease.nonce == lease.nonce and later.lease.expires_at > lease.expires_at
