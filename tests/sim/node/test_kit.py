from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.store.memory_store import MemoryStore
from hawker.up.wiring import NODE_FLOWS


def test_the_sound_kit_has_the_real_parts() -> None:
    store = MemoryStore()
    assert WorkerKit() == SOUND and SOUND.store(store) is store and SOUND.flows() is NODE_FLOWS
