import pytest

from hawker.api.contract.lease import CREATE_LEASE, GET_LEASE, RELEASE_LEASE, LeaseAnswer, LeaseQuery, LeaseRequest
from hawker.errors import LeaseHeld, NotFound
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


async def _take(worker: SimWorker, machine_id: str, nonce: str | None = None, **body: object) -> LeaseAnswer:
    request = LeaseRequest(**body)  # type: ignore[arg-type]
    return await worker.api.call(CREATE_LEASE, params=params(machine_id), body=request, nonce=nonce)


async def test_a_lease_is_answered_in_an_envelope_and_flat(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id, ttl=30, description="deploying")
    assert lease.status == "success" and lease.data.nonce == lease.nonce
    assert (lease.data.owner, lease.data.description) == ("ann", "deploying")
    assert lease.data.version == worker.record(machine_id).version
    shown = await worker.api.call(GET_LEASE, params=params(machine_id))
    assert shown.data.nonce == lease.nonce, "clients release with what they read here"


async def test_a_lease_is_refreshed_with_its_own_nonce_only(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id, ttl=30)
    with pytest.raises(LeaseHeld):
        await _take(worker, machine_id)
    await stall.clock.sleep(10)
    again = await _take(worker, machine_id, nonce=lease.nonce, ttl=30)
    assert again.nonce == lease.nonce and again.expires_at == lease.expires_at + 10


async def test_the_query_may_say_how_long(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    lease = await worker.api.call(CREATE_LEASE, params=params(machine_id), query=LeaseQuery(ttl=13.0))
    assert lease.expires_at == int(stall.clock.now() + 13)


async def test_an_expired_lease_is_none(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    await _take(worker, machine_id, ttl=5)
    await stall.clock.sleep(5)
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(GET_LEASE, params=params(machine_id))
    await worker.start(machine_id)


async def test_a_lease_is_released_by_its_holder(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id)
    with pytest.raises(LeaseHeld):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id))
    answer = await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)
    assert answer.data.ok
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)


async def test_a_machine_that_is_gone_has_no_lease_to_take_or_release(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id)
    await worker.destroy(machine_id, nonce=lease.nonce)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await _take(worker, machine_id)
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)
