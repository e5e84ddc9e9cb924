import pytest

from hawker.errors import Moved, MoveUnderWay
from hawker.ids import AppName, MachineId, NodeId
from hawker.record.move import (
    GRANTS,
    MOVED,
    OPEN_MOVE_OF,
    GrantRecord,
    MovedRecord,
    MovePointer,
    MoveRecord,
    check_here,
    check_not_gone,
    is_granted,
)
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio
APP, OTHER = AppName("shop"), NodeId("0badcafe")


async def test_a_machine_being_moved_is_refused_and_a_moved_one_says_where() -> None:
    store = MemoryStore()
    check_here(store, "m", None)
    await store.write(lambda tx: tx.put(OPEN_MOVE_OF, "m", MovePointer(move="01")))
    with pytest.raises(MoveUnderWay, match="hawker moves cancel 01"):
        check_here(store, "m")
    went = MovedRecord(app=APP, to=OTHER, generation=2, at=0.0)
    await store.write(lambda tx: tx.put(MOVED, "m", went))
    with pytest.raises(Moved) as raised:
        check_here(store, "m")
    assert raised.value.node == OTHER


async def test_another_app_is_not_told_where_something_went() -> None:
    store = MemoryStore()
    await store.write(lambda tx: tx.put(MOVED, "m", MovedRecord(app=APP, to=OTHER, generation=2, at=0.0)))
    check_not_gone(store, "m", AppName("other"))
    with pytest.raises(Moved):
        check_not_gone(store, "m", APP)


async def test_a_granted_unit_is_anothers() -> None:
    store = MemoryStore()
    assert not is_granted(store, "m")
    made = GrantRecord(unit="m", generation=2, to=OTHER, move="01", at=0.0)
    await store.write(lambda tx: tx.put(GRANTS, "m", made))
    assert is_granted(store, "m")


def test_a_machine_and_its_volume_are_one_unit() -> None:
    move = MoveRecord(id="01", app=APP, machine=MachineId("m"), generation=2, created_at=0.0, updated_at=0.0)
    assert move.unit == "m"
