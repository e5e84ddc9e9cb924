from pathlib import Path

from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.fleet.fake_catalog_disk import FakeCatalogDisk
from hawker.sim.fleet.kit import SOUND_FLEET


def opened(catalog_disk: FakeCatalogDisk) -> SqliteStorage:
    return SOUND_FLEET.storage(catalog_disk.file, NodeId("00000001"), ManualClock(), boot=lambda: catalog_disk.boot)


def proven_after(catalog_disk: FakeCatalogDisk) -> bool:
    storage = opened(catalog_disk)
    storage.close()
    return storage.proven()


def test_a_killed_daemon_leaves_a_file_that_is_whole_and_a_power_cut_does_not(tmp_path: Path) -> None:
    for cut in (False, True):
        catalog_disk = FakeCatalogDisk(tmp_path / str(cut))
        storage = opened(catalog_disk)
        before = catalog_disk.file
        catalog_disk.kill()
        if cut:
            catalog_disk.reboot()
        storage.close()
        assert catalog_disk.file != before
        assert proven_after(catalog_disk) is (storage.proven() and not cut)
