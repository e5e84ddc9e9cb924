"""What was acknowledged and is not so is told; what may or may not have happened is not claimed."""

import pytest

from hawker.ids import EventId, MachineId, OrderId
from hawker.machine import State
from hawker.proof.promises import ClientCall, Promises
from hawker.proof.violation import Invariant
from hawker.record.machine import BY_ORDER, DESTROYED, EVENTS, MACHINES, EventRecord, MachineKey, MachineRecord
from hawker.sim.node.sim_worker import config_of
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
M = MachineId("00000000000001")


async def store(*records: MachineRecord, gone: bool = False) -> MemoryStore:
    made = MemoryStore()

    def apply(tx: Tx) -> None:
        for record in records:
            tx.put(DESTROYED if gone else MACHINES, record.id, record)

    await made.write(apply)
    return made


def promised(*calls: ClientCall) -> Promises:
    promises = Promises()
    promises.created(M, "order")
    for call in calls:
        promises.ask(M, call).acknowledged(env={"A": "1"}, metadata={"B": "2"})
    return promises


async def told(promises: Promises, made: MemoryStore) -> list[str]:
    return [violation.what for violation in promises.broken(made)]


async def test_a_machine_that_was_acknowledged_and_is_not_there_is_forgotten() -> None:
    assert await told(promised(), await store()) == ["was acknowledged and is forgotten"]
    assert await told(promised(), await store(machine())) == []


async def test_a_stop_and_a_destroy_hold() -> None:
    assert "stop was acknowledged, and it is started" in await told(promised(ClientCall.STOP), await store(machine()))
    assert "destroy was acknowledged, and it is started" in await told(
        promised(ClientCall.DESTROY), await store(machine())
    )
    assert await told(promised(ClientCall.DESTROY), await store(machine(), gone=True)) == []
    assert "create was acknowledged, and it is destroyed" in await told(promised(), await store(machine(), gone=True))


async def test_a_suspended_machine_stays_so_until_it_is_started() -> None:
    asleep, awake = await store(machine(state=State.SUSPENDED)), await store(machine())
    assert await told(promised(ClientCall.SUSPEND), asleep) == []
    assert await told(promised(ClientCall.SUSPEND), awake) == ["suspend was acknowledged, and it is started"]
    assert await told(promised(ClientCall.SUSPEND, ClientCall.START), asleep) == [
        "start was acknowledged, and it is suspended"
    ]
    assert await told(promised(ClientCall.SUSPEND, ClientCall.START), awake) == []


async def test_a_suspension_that_came_too_late_is_told_by_the_history() -> None:
    awake = await store(machine())
    event = EventRecord(id=EventId("1"), type="suspend", status="failed", source="flyd", at=0.0)
    await awake.write(lambda tx: tx.put(EVENTS, f"{M}/1", event))
    assert await told(promised(ClientCall.SUSPEND), awake) == []


async def test_a_create_that_was_taken_back_says_why() -> None:
    made = await store(machine(), gone=True)
    event = EventRecord(id=EventId("1"), type="launch", status="launch_failed", source="flyd", at=0.0)
    await made.write(lambda tx: tx.put(EVENTS, f"{M}/1", event))
    assert await told(promised(), made) == []


async def test_env_and_metadata_are_those_of_the_last_update() -> None:
    right = machine(config=config_of(env={"A": "1"}, metadata={"B": "2"}))
    assert await told(promised(ClientCall.UPDATE), await store(right)) == []
    assert len(await told(promised(ClientCall.UPDATE), await store(machine()))) == 2


async def test_an_update_that_fell_back_says_so() -> None:
    made = await store(machine())
    event = EventRecord(id=EventId("1"), type="update", status="failed", source="flyd", at=0.0)
    await made.write(lambda tx: tx.put(EVENTS, f"{M}/1", event))
    assert await told(promised(ClientCall.UPDATE), made) == []


async def test_call_without_answer_leaves_promises_open_until_the_next() -> None:
    promises, stopped = promised(ClientCall.START), machine(state=State.STOPPED)
    promises.ask(M, ClientCall.STOP)
    assert await told(promises, await store(stopped)) == await told(promises, await store(machine())) == []
    promises.ask(M, ClientCall.STOP).acknowledged()
    assert await told(promises, await store(machine())) != []


async def test_a_refusal_leaves_what_was_told_before() -> None:
    promises = promised(ClientCall.STOP)
    promises.ask(M, ClientCall.START).refused()
    assert await told(promises, await store(machine())) == ["stop was acknowledged, and it is started"]


async def test_overlapping_calls_promise_nothing() -> None:
    promises = promised()
    first, second = promises.ask(M, ClientCall.STOP), promises.ask(M, ClientCall.START)
    second.acknowledged()
    first.acknowledged()
    assert await told(promises, await store(machine())) == []


async def test_one_order_is_one_machine() -> None:
    promises = promised()
    assert promises.created(M, "order") == []
    assert [found.invariant for found in promises.created(MachineId("2"), "order")] == [Invariant.KEPT]
    twins = [machine(f"0000000000000{number}", order=OrderId("order")) for number in (1, 2)]
    made = await store(*twins)
    await made.write(lambda tx: tx.put(BY_ORDER, "stall/order", MachineKey(id=M)))
    assert any("was filled by" in what for what in await told(promises, made))


async def test_a_lease_keeps_others_out_while_it_is_held() -> None:
    promises = promised()
    promises.leased(M, "nonce", until=100.0)

    def change(call: ClientCall = ClientCall.START, nonce: str | None = None, now: float = 50.0) -> int:
        return len(promises.ask(M, call).acknowledged(nonce=nonce, now=now))

    assert change() == 1
    assert change(nonce="nonce") == change(now=100.0) == change(ClientCall.METADATA) == 0
    promises.unleased(M)
    assert change() == 0


async def test_a_lease_given_during_a_call_does_not_bind_it() -> None:
    promises = promised()
    ticket = promises.ask(M, ClientCall.START)
    promises.leased(M, "nonce", until=100.0)
    assert ticket.acknowledged(now=50.0) == []
