from pathlib import Path

import anyio
import pytest

from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from hawker.sim.fleet.cluster import SOUND_FLEET, FakeCatalogDisk, GossipingNode, address_of, inline
from hawker.store.memory_store import MemoryStore
from tests.sim.fleet.clusters import cluster_of

pytestmark = pytest.mark.anyio


async def test_nodes_find_each_other_and_read_the_same_catalog(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3) as (cluster, hosts, _):
        await cluster.call_network.clock.sleep(5)
        for host in hosts:
            assert isinstance(host.node, GossipingNode)
            assert {member.node for member in host.node.gossip.members()} == {each.id for each in hosts}
            assert len(await host.node.fleet.nodes()) == 3


async def test_work_is_done_whole_also_when_it_is_cancelled() -> None:
    done = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await inline(lambda: done.append(1))
    assert done == [1]


def test_each_node_has_an_address(tmp_path: Path) -> None:
    assert address_of("00000001") != address_of("00000002")  # type: ignore[arg-type]


def test_a_sound_kit_changes_nothing_and_keeps_a_real_catalog(tmp_path: Path) -> None:
    store = MemoryStore()
    assert SOUND_FLEET.store(store) is store
    storage = SOUND_FLEET.storage(tmp_path / "catalog.db", NodeId("00000001"), ManualClock(), boot=lambda: "boot 1")
    assert "machines" in storage.tables()
    storage.close()


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
