"""Which machines of a deploy serve while it runs, and how many may be away."""

from collections.abc import Sequence

import pytest

from hawker.ids import MachineId, NodeId
from hawker.proof.deploy_checks import DeploySight, Serving
from hawker.proof.violation import Invariant
from hawker.record.deploy import (
    DEPLOY_SLOTS,
    DEPLOYS,
    DeployLimits,
    DeployRecord,
    SlotBefore,
    SlotKind,
    SlotRecord,
    SlotState,
    deploy_key,
    slot_key,
)
from hawker.record.machine import MACHINES
from hawker.sim.node.sim_worker import config_of
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
NODE = NodeId("00000001")
NAMES = [f"{number:014x}" for number in range(6)]
BEFORE = SlotBefore(version="v", config=config_of(), started=True)
WAITING, CHANGING, DONE = SlotState.WAITING, SlotState.CHANGING, SlotState.DONE


def slot(number: int, state: SlotState, region: str = "mad", kind: SlotKind = SlotKind.UPDATE) -> SlotRecord:
    before = None if kind is SlotKind.CREATE else BEFORE
    return SlotRecord(
        number=number, kind=kind, group="app", region=region, machine=NAMES[number], state=state, before=before, at=1.0
    )


class Seen:
    """One deploy, looked at again and again."""

    def __init__(self, strategy: str = "rolling") -> None:
        self.store = MemoryStore()
        self._strategy = strategy
        self._serving = Serving(0.33)

    async def look(self, slots: Sequence[SlotRecord], serving: Sequence[int]) -> list[Invariant]:
        def apply(tx: Tx) -> None:
            limits = DeployLimits()
            deploy = DeployRecord(version=1, strategy=self._strategy, limits=limits, began_at=1.0)
            tx.put(DEPLOYS, deploy_key("web", 1), deploy)
            for each in slots:
                tx.put(DEPLOY_SLOTS, slot_key("web", 1, each.number), each)
                tx.put(MACHINES, MachineId(each.machine), machine(id=each.machine))

        await self.store.write(apply)
        up = frozenset(MachineId(NAMES[number]) for number in serving)
        sight = DeploySight("web", {NODE: self.store}, running=up, steady=frozenset({NODE}), serving=up)
        return [each.invariant for each in self._serving.look(sight)]


async def test_as_many_machines_may_be_away_as_the_budget_says() -> None:
    seen, regions = Seen(), ("mad", "mad", "mad", "mad", "ams", "lhr")
    slots = [slot(number, WAITING, region) for number, region in enumerate(regions)]
    assert await seen.look(slots, range(6)) == []
    slots[0] = slot(0, CHANGING)
    slots[4] = slot(4, CHANGING, "ams")
    assert await seen.look(slots, [1, 2, 3, 5]) == []
    slots[1] = slot(1, CHANGING)
    assert await seen.look(slots, [2, 3, 5]) == [Invariant.BUDGET]


async def test_a_region_has_no_more_away_than_its_own_share() -> None:
    seen = Seen()
    slots = [slot(number, WAITING, "mad" if number < 3 else "ams") for number in range(6)]
    assert await seen.look(slots, range(6)) == []
    slots[3], slots[4] = slot(3, CHANGING, "ams"), slot(4, CHANGING, "ams")
    assert await seen.look(slots, [0, 1, 2, 5]) == [Invariant.BUDGET], "two of six may be, and one of three"


async def test_machines_that_did_not_serve_before_are_not_missed() -> None:
    seen = Seen()
    slots = [slot(number, WAITING) for number in range(3)]
    assert await seen.look(slots, [0]) == []
    slots[1], slots[2] = slot(1, CHANGING), slot(2, DONE)
    assert await seen.look(slots, [0]) == []


async def test_bluegreen_has_as_many_that_serve_as_before() -> None:
    seen = Seen("bluegreen")
    slots = [slot(number, WAITING, kind=SlotKind.DESTROY) for number in range(2)]
    assert await seen.look(slots, [0, 1]) == []
    slots += [slot(2, DONE, kind=SlotKind.CREATE), slot(3, CHANGING, kind=SlotKind.CREATE)]
    assert await seen.look(slots, [1, 2]) == []
    assert await seen.look(slots, [2]) == [Invariant.BUDGET]
