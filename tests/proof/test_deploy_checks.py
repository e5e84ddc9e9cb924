"""Each promise about deploys, kept and broken."""

from typing import Any

import msgspec
import pytest

from hawker.ids import MachineId, NodeId
from hawker.proof.deploy_checks import RELEASE, DeploySight, OwnExits, deploys_at_rest, of_deploys, refused
from hawker.proof.violation import Invariant
from hawker.record.app import RELEASES, ReleaseRecord
from hawker.record.deploy import (
    DEPLOY_SLOTS,
    DEPLOYS,
    DeployLimits,
    DeployRecord,
    DeployTask,
    SlotBefore,
    SlotKind,
    SlotRecord,
    SlotState,
    deploy_key,
    slot_key,
)
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import config_of
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
APP, KEY = "web", deploy_key("web", 2)


def release(status: str) -> ReleaseRecord:
    return ReleaseRecord(
        version=2,
        status=status,
        strategy="rolling",
        image="a:1",
        description="",
        definition=b"",
        user="",
        created_at=1.0,
        updated_at=1.0,
    )


def deploy(**fields: Any) -> DeployRecord:
    found = {"version": 2, "strategy": "rolling", "limits": DeployLimits(), "began_at": 1.0, "ended_at": 9.0}
    return DeployRecord(**{**found, **fields})


def slot(number: int, state: SlotState = SlotState.DONE, **fields: Any) -> SlotRecord:
    found = {"kind": SlotKind.UPDATE, "group": "app", "region": None, "at": 1.0, "machine": f"{number:014x}"}
    return SlotRecord(number=number, state=state, **{**found, **fields})


async def broken(
    status: str, record: DeployRecord, *slots: SlotRecord, machines: dict[str, str] | None = None
) -> set[str]:
    """What is found wrong, by whom it is about. `machines` are those that are there, with their releases."""
    store = MemoryStore()

    async def put(bucket: Bucket[Any], key: str, value: Any) -> None:
        await store.write(lambda tx: tx.put(bucket, key, value))

    await put(RELEASES, KEY, release(status))
    await put(DEPLOYS, KEY, record)
    for each in slots:
        await put(DEPLOY_SLOTS, slot_key(APP, 2, each.number), each)
    for machine_id, number in (machines or {}).items():
        there = machine(config=config_of(metadata={RELEASE: number}))
        await put(MACHINES, machine_id, msgspec.structs.replace(there, id=MachineId(machine_id)))
    return {each.about for each in (*of_deploys(store), *deploys_at_rest(store))}


BEFORE = SlotBefore(version="1", config=config_of(metadata={RELEASE: "1"}), started=True)
ONE, TWO = f"{1:014x}", f"{2:014x}"
COMMAND = DeployTask(config=config_of(), region=None, timeout_s=1.0)


async def test_a_deploy_that_ended_as_it_should_is_nothing_to_report() -> None:
    assert await broken("complete", deploy(), slot(1), slot(2), machines={ONE: "2", TWO: "3"}) == set()
    back = slot(1, SlotState.RETURNED, before=BEFORE)
    assert await broken("rolled_back", deploy(), back, machines={ONE: "1"}) == set()
    skipped = slot(1, SlotState.SKIPPED)
    assert await broken("complete", deploy(), skipped, machines={ONE: "1"}) == set(), "its host was away"
    asked = deploy(command=msgspec.structs.replace(COMMAND, exit_code=0))
    assert await broken("complete", asked, slot(1), machines={ONE: "2"}) == set()


async def test_a_machine_is_in_one_slot() -> None:
    assert await broken("complete", deploy(), slot(1), slot(2, machine=ONE), machines={ONE: "2"}) == {ONE}


@pytest.mark.parametrize("code", [None, 3])
async def test_no_machine_changes_before_the_release_command_ended_well(code: int | None) -> None:
    asked = deploy(command=msgspec.structs.replace(COMMAND, exit_code=code))
    assert await broken("failed", asked, slot(1, SlotState.CHANGING)) == {KEY}
    assert await broken("failed", asked, slot(1, SlotState.WAITING)) == set()


async def test_a_deploy_ends_when_its_release_does_and_somebody_works_on_it_until_then() -> None:
    assert await broken("complete", deploy(ended_at=None)) == {KEY}
    assert await broken("running", deploy(ended_at=None)) == {KEY}


async def test_complete_means_every_machine_is_at_the_release() -> None:
    assert await broken("complete", deploy(), slot(1, SlotState.PROVING)) == {KEY}
    assert await broken("complete", deploy(), slot(1), machines={ONE: "1"}) == {ONE}
    assert await broken("complete", deploy(), slot(1, kind=SlotKind.DESTROY), machines={ONE: "1"}) == {ONE}


async def test_taken_back_means_every_machine_is_as_it_was() -> None:
    back = slot(1, SlotState.RETURNED, before=BEFORE)
    assert await broken("rolled_back", deploy(), back, machines={ONE: "2"}) == {ONE}
    made = slot(1, SlotState.RETURNED, kind=SlotKind.CREATE)
    assert await broken("rolled_back", deploy(), made, machines={ONE: "2"}) == {ONE}


HOME, OTHER = NodeId("0000000a"), NodeId("0000000b")


async def sight(*stores: MemoryStore, running: tuple[str, ...] = (), steady: bool = True) -> DeploySight:
    readers = dict(zip((HOME, OTHER), stores, strict=False))
    ids = frozenset(MachineId(each) for each in running)
    return DeploySight(app=APP, readers=readers, running=ids, steady=frozenset(readers if steady else ()))


async def released(store: MemoryStore, *versions: int, label: str = "") -> None:
    def apply(tx: Tx) -> None:
        for version in versions:
            record = msgspec.structs.replace(release("complete"), version=version, description=label)
            tx.put(RELEASES, deploy_key(APP, version), record)

    await store.write(apply)


async def test_an_order_that_was_refused_is_no_release_and_has_no_number() -> None:
    home, other = MemoryStore(), MemoryStore()
    await released(home, 3, 4, label="taken")
    assert list(refused(await sight(home, other), HOME, {"order 1"})) == []
    await released(home, 6)
    assert [each.invariant for each in refused(await sight(home, other), HOME, {"order 1"})] == [Invariant.REFUSED]
    await released(home, 5)
    await released(other, 7, label="order 1")
    assert [each.invariant for each in refused(await sight(home, other), HOME, {"order 1"})] == [Invariant.REFUSED]


@pytest.mark.parametrize(
    ("running", "steady", "after_s", "found"),
    [(True, True, 50, 0), (False, False, 50, 0), (False, True, 50, 1), (False, True, 40, 0)],
)
async def test_a_machine_that_ended_by_itself_runs_again_in_time(
    running: bool, steady: bool, after_s: float, found: int
) -> None:
    store, record = MemoryStore(), machine()
    await store.write(lambda tx: tx.put(MACHINES, record.id, record))
    exits = OwnExits(45.0)
    exits.exited(record.id, 100.0)
    seen = await sight(store, running=(record.id,) if running else (), steady=steady)
    assert len(list(exits.look(seen, 100.0 + after_s))) == found
