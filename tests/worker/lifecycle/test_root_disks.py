"""Block files of a machine's own, beside an image's: real ones, and nothing of them is mounted."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import CannotStart, NotFound, NotServed, WrongState
from hawker.host.ext4 import LEAST_MIB, read_superblock
from hawker.host.mount import mount, unmount
from hawker.host.sparse import allocated_bytes
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.image.limits import ImageSettings
from hawker.worker.lifecycle.root_disks import DiskRootfs

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.usefixtures("nothing_stray")]
MACHINE, OTHER = MachineId("00000000000001"), MachineId("00000000000002")
FIRST, SECOND = InstanceId("I1"), InstanceId("I2")
MIB = 1 << 20


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def images(tmp_path: Path) -> AsyncIterator[ImageCache]:
    cache = ImageCache(tmp_path / "images", ImageSettings(allow_local=True), SystemClock())
    await cache.open()
    yield cache
    await cache.aclose()


@pytest.fixture
async def digest(images: ImageCache) -> Digest:
    return (await images.pull("hawker/hello")).digest


@pytest.fixture
def rootfs(tmp_path: Path, images: ImageCache) -> DiskRootfs:
    return DiskRootfs(tmp_path, images, 64)


def wrote(layer: str) -> Path:
    """What the machine wrote, instead of a filesystem."""
    Path(layer).write_bytes(b"written")
    return Path(layer)


def has(layer: str, content: bytes = b"written") -> bool:
    return Path(layer).read_bytes() == content


def size(layer: Path) -> int:
    return layer.stat().st_size


def layers(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "machines" / MACHINE / "layers"))


async def test_a_layer_is_a_sparse_ext4_of_the_machines_size(rootfs: DiskRootfs, digest: Digest) -> None:
    layer = Path(await rootfs.mount(MACHINE, FIRST, digest))
    found = read_superblock(layer)
    assert found is not None and found.whole and found.bytes == size(layer) == 64 * MIB
    assert allocated_bytes(layer) < 8 * MIB
    assert await rootfs.visible() == {MACHINE} and await rootfs.strays() == ()


async def test_the_same_instance_has_the_same_layer_and_the_next_a_fresh_one(
    rootfs: DiskRootfs, digest: Digest, tmp_path: Path
) -> None:
    layer = wrote(await rootfs.mount(MACHINE, FIRST, digest))
    assert await rootfs.mount(MACHINE, FIRST, digest) == str(layer) and has(str(layer))
    other = Path(await rootfs.mount(MACHINE, SECOND, digest))
    assert read_superblock(other) is not None and layers(tmp_path) == [SECOND]


async def test_one_that_is_kept_outlives_its_instance_and_others_do_not(
    rootfs: DiskRootfs, digest: Digest, tmp_path: Path
) -> None:
    wrote(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    await rootfs.unmount(MACHINE, kept="kept")
    assert await rootfs.visible() == frozenset() and layers(tmp_path) == ["kept"]
    assert has(await rootfs.mount(MACHINE, SECOND, digest, kept="kept"))
    await rootfs.unmount(MACHINE)
    assert layers(tmp_path) == []


async def test_a_daemon_that_died_in_the_middle_leaves_a_draft_that_counts_for_nothing(
    rootfs: DiskRootfs, digest: Digest, tmp_path: Path
) -> None:
    half = tmp_path / "machines" / MACHINE / "layers" / FIRST
    half.mkdir(parents=True)
    (half / "draft").write_bytes(b"half")
    assert await rootfs.visible() == frozenset()
    layer = Path(await rootfs.mount(MACHINE, FIRST, digest))
    assert read_superblock(layer) is not None and os.listdir(layer.parent) == ["disk"]


async def test_a_removed_disk_is_gone_with_the_next_sweep(rootfs: DiskRootfs, digest: Digest, tmp_path: Path) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    await rootfs.remove(MACHINE)
    await rootfs.remove(OTHER)
    assert await rootfs.list() == [] and list((tmp_path / "trash").iterdir())
    await rootfs.sweep()
    assert not (tmp_path / "trash").exists()


async def test_a_machine_may_ask_for_a_size_of_its_own(rootfs: DiskRootfs, digest: Digest) -> None:
    layer = Path(await rootfs.mount(MACHINE, FIRST, digest, size_mib=128))
    found = read_superblock(layer)
    assert found is not None and found.bytes == size(layer) == 128 * MIB


async def test_no_template_outlives_a_node_that_goes(rootfs: DiskRootfs, digest: Digest, tmp_path: Path) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    assert os.listdir(tmp_path / "layers") == ["ext4-64"]
    await rootfs.sweep()
    assert os.listdir(tmp_path / "layers") == ["ext4-64"]
    await rootfs.withdraw()
    assert not (tmp_path / "layers").exists()


async def test_a_lost_link_is_made_again_and_a_lost_layer_cannot_be(rootfs: DiskRootfs, digest: Digest) -> None:
    layer = Path(await rootfs.mount(MACHINE, FIRST, digest))
    link = layer.parents[2] / "rootdisk"
    link.unlink()
    await rootfs.reveal(MACHINE, 1)
    assert await rootfs.visible() == {MACHINE}
    os.unlink(layer)
    assert await rootfs.visible() == frozenset()
    with pytest.raises(WrongState, match="is gone: its next start makes a new one"):
        await rootfs.reveal(MACHINE, 1)


async def test_whatever_is_mounted_is_a_stray(rootfs: DiskRootfs, digest: Digest, tmp_path: Path) -> None:
    target = tmp_path / "machines" / MACHINE / "rootfs"
    target.mkdir(parents=True)
    mount("tmpfs", target, "tmpfs", 0)
    try:
        assert await rootfs.strays() == (str(target),)
        await rootfs.clear(str(target))
        assert await rootfs.strays() == ()
    finally:
        unmount(target)


async def test_an_image_without_a_block_file_and_containers_are_refused(rootfs: DiskRootfs) -> None:
    with pytest.raises(NotFound, match="no block image"):
        await rootfs.mount(MACHINE, FIRST, Digest("sha256:" + "0" * 64))
    with pytest.raises(NotServed, match="one container"):
        await rootfs.mount_containers(MACHINE, FIRST, [], [])


async def test_a_disk_too_small_for_a_filesystem_is_refused_at_the_start(tmp_path: Path, images: ImageCache) -> None:
    with pytest.raises(CannotStart, match=f"machine_disk_mib is 15.*need {LEAST_MIB}"):
        DiskRootfs(tmp_path, images, 15)
