from pathlib import Path

from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.fleet.fake_catalog_disk import FakeCatalogDisk
from hawker.sim.fleet.kit import SOUND_FLEET


def opened(shelf: FakeCatalogDisk) -> SqliteStorage:
    return SOUND_FLEET.storage(shelf.file, NodeId("00000001"), ManualClock(), boot=lambda: shelf.boot)


def proven_after(shelf: FakeCatalogDisk) -> bool:
    storage = opened(shelf)
    storage.close()
    return storage.proven()


def test_a_killed_daemon_leaves_a_file_that_is_whole_and_a_power_cut_does_not(tmp_path: Path) -> None:
    for cut in (False, True):
        shelf = FakeCatalogDisk(tmp_path / str(cut))
        storage = opened(shelf)
        before = shelf.file
        shelf.kill()
        if cut:
            shelf.reboot()
        storage.close()
        assert shelf.file != before
        assert proven_after(shelf) is (storage.proven() and not cut)
