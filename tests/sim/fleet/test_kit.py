from pathlib import Path

from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.fleet.kit import SOUND_FLEET
from hawker.store.memory_store import MemoryStore


def test_a_sound_kit_changes_nothing_and_keeps_a_real_catalog(tmp_path: Path) -> None:
    store = MemoryStore()
    assert SOUND_FLEET.store(store) is store
    storage = SOUND_FLEET.storage(tmp_path / "catalog.db", NodeId("00000001"), ManualClock(), boot=lambda: "boot 1")
    assert "machines" in storage.tables()
    storage.close()
