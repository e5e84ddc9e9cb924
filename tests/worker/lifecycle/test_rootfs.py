"""Real mounts of a real block image."""

import errno
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from threading import get_ident

import pytest

from hawker.clock import SystemClock
from hawker.errors import CannotStart, WrongState
from hawker.host.mount import is_mounted, mount, unmount
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.image.limits import ImageSettings
from hawker.worker.lifecycle.rootfs import HostRootfs
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.usefixtures("nothing_stray")]
MACHINE, OTHER = MachineId("00000000000001"), MachineId("00000000000002")
SIZE_MIB = 32
FIRST, SECOND = InstanceId("I1"), InstanceId("I2")


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
async def rootfs(tmp_path: Path, images: ImageCache) -> AsyncIterator[HostRootfs]:
    rootfs = HostRootfs(tmp_path, images, SIZE_MIB)
    yield rootfs
    for machine_id in (MACHINE, OTHER):
        await rootfs.remove(machine_id)
    await rootfs.withdraw()


def _files(directory: Path, name: str) -> list[Path]:
    return list(directory.rglob(name))


async def test_a_new_instance_sees_the_image_and_nothing_of_the_last_one(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest))
    assert (root / "bin/hello").is_file()
    (root / "bin/hello").unlink()
    (root / "new").write_text("mine")
    fresh = Path(await rootfs.mount(MACHINE, SECOND, digest))
    assert (fresh / "bin/hello").is_file() and not (fresh / "new").exists()


async def test_the_same_instance_finds_what_it_wrote(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest))
    (root / "new").write_text("mine")
    assert (Path(await rootfs.mount(MACHINE, FIRST, digest)) / "new").read_text() == "mine"


async def test_machines_do_not_see_each_others_files(rootfs: HostRootfs, digest: Digest) -> None:
    mine = Path(await rootfs.mount(MACHINE, FIRST, digest))
    theirs = Path(await rootfs.mount(OTHER, FIRST, digest))
    (mine / "new").write_text("mine")
    assert not (theirs / "new").exists()


async def test_a_stopped_machine_gives_its_layer_back(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest))
    (root / "new").write_text("mine")
    for _ in range(2):
        await rootfs.unmount(MACHINE)
    assert not is_mounted(root) and await rootfs.list() == [MACHINE]
    await rootfs.sweep()
    assert not _files(tmp_path, "new")


async def test_the_loop_goes_on_while_what_a_machine_wrote_goes_to_the_disk(
    rootfs: HostRootfs, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    threads = set[int]()

    def noted(target: Path) -> None:
        threads.add(get_ident())
        unmount(target)

    monkeypatch.setattr("hawker.worker.lifecycle.rootfs.unmount", noted)
    await rootfs.unmount(MACHINE)
    assert threads and get_ident() not in threads


async def test_a_kept_layer_outlives_instances_and_unmounting(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    (root / "new").write_text("mine")
    assert (Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept")) / "new").read_text() == "mine"
    await rootfs.unmount(MACHINE, kept="kept")
    assert not is_mounted(root) and await rootfs.visible() == frozenset() and await rootfs.strays() == ()
    assert (Path(await rootfs.mount(MACHINE, SECOND, digest, kept="kept")) / "new").read_text() == "mine"


async def test_a_layer_of_another_name_is_fresh(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept-1"))
    (root / "new").write_text("mine")
    assert not (Path(await rootfs.mount(MACHINE, SECOND, digest, kept="kept-2")) / "new").exists()
    await rootfs.unmount(MACHINE)
    await rootfs.sweep()
    assert not _files(tmp_path, "new") and list((tmp_path / "machines" / MACHINE / "layers").iterdir()) == []


async def test_a_kept_layer_goes_with_its_machine(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    (root / "new").write_text("mine")
    await rootfs.unmount(MACHINE, kept="kept")
    await rootfs.remove(MACHINE)
    await rootfs.sweep()
    assert not _files(tmp_path, "new") and await rootfs.list() == []


async def test_a_removed_machine_leaves_no_directory(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    for _ in range(2):
        await rootfs.remove(MACHINE)
    assert await rootfs.list() == [] and not (tmp_path / "machines" / MACHINE).exists()


async def test_a_root_never_mounted_can_be_removed(rootfs: HostRootfs) -> None:
    await rootfs.unmount(MACHINE)
    await rootfs.remove(MACHINE)
    assert await rootfs.list() == []


async def test_an_image_is_let_go(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    (mount,) = (tmp_path / "mounts").iterdir()
    assert is_mounted(mount)
    await rootfs.remove(MACHINE)
    await rootfs.forget_image(digest)
    assert not mount.exists()
    await rootfs.forget_image(digest)


# What is there, and what is nobody's.


async def test_a_rootfs_is_visible_while_it_is_mounted(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest))
    await rootfs.mount(OTHER, FIRST, digest)
    assert await rootfs.visible() == {MACHINE, OTHER} and await rootfs.strays() == ()
    unmount(root)
    assert await rootfs.visible() == {OTHER}


async def test_only_the_machines_own_root_is_revealed(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest))
    unmount(root)
    with pytest.raises(WrongState, match="does not live in the root filesystem"):
        await rootfs.reveal(MACHINE, os.getpid())
    assert not is_mounted(root)


def _mount_tmpfs(*targets: Path) -> None:
    for target in targets:
        target.mkdir(parents=True, exist_ok=True)
        mount("none", target, "tmpfs", 0)


async def test_mounts_of_nobody_are_found_and_cleared(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    await rootfs.mount(MACHINE, FIRST, digest)
    strays = (tmp_path / "machines" / MACHINE / "extra", tmp_path / "mounts" / ("0" * 64), tmp_path / "mounts" / "odd")
    _mount_tmpfs(*strays, tmp_path / "machines-of-somebody")
    assert await rootfs.strays() == tuple(map(str, strays))
    for stray in strays * 2:
        await rootfs.clear(str(stray))
    assert await rootfs.strays() == () and await rootfs.visible() == {MACHINE}
    assert not any(map(is_mounted, strays))
    unmount(tmp_path / "machines-of-somebody")


async def test_a_loop_device_of_an_image_that_nothing_mounts_is_a_stray(
    rootfs: HostRootfs, images: ImageCache, tmp_path: Path
) -> None:
    device = _attach(images.root / "left")
    assert await rootfs.strays() == (device,)
    await rootfs.clear(device)

    async def is_gone() -> bool:
        return await rootfs.strays() == ()

    await eventually(is_gone)  # whoever looks for a free device may have it open


def _attach(file: Path) -> str:
    file.write_bytes(bytes(4096))
    done = subprocess.run(["losetup", "--find", "--show", str(file)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


# The size of a layer.


def _fill(root: Path) -> int:
    """Until nothing more fits; how many MiB did."""
    with (root / "fill").open("wb", buffering=0) as file:
        for written in range(SIZE_MIB * 4):
            try:
                file.write(bytes(1 << 20))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return written
    raise AssertionError("a layer is never full")


async def test_a_machine_that_fills_its_layer_is_the_only_one_that_notices(rootfs: HostRootfs, digest: Digest) -> None:
    mine, theirs = [Path(await rootfs.mount(each, FIRST, digest)) for each in (MACHINE, OTHER)]
    assert SIZE_MIB * 3 // 4 <= _fill(mine) <= SIZE_MIB
    (theirs / "new").write_bytes(bytes(1 << 20))
    fresh = Path(await rootfs.mount(MACHINE, SECOND, digest))
    (fresh / "new").write_bytes(bytes(1 << 20))


async def test_a_machine_with_many_small_files_takes_no_inodes_of_the_host(
    rootfs: HostRootfs, digest: Digest, tmp_path: Path
) -> None:
    root, before = Path(await rootfs.mount(MACHINE, FIRST, digest)), _inodes_of_the_host(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        for number in range(100_000):
            (root / f"{number}").touch()
    assert _inodes_of_the_host(tmp_path) - before < 100


def _inodes_of_the_host(directory: Path) -> int:
    """Below the directory, beside what is mounted there; those of the whole disk are other tests' as well."""
    count = 0
    for place, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not os.path.ismount(Path(place) / name)]
        count += len(folders) + len(files)
    return count


async def test_a_machine_has_the_size_that_it_asks_for(rootfs: HostRootfs, digest: Digest) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, size_mib=SIZE_MIB * 2))
    assert SIZE_MIB * 3 // 2 <= _fill(root) <= SIZE_MIB * 2


async def test_a_kept_layer_grows_and_does_not_shrink(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    (root / "new").write_text("mine")
    for asked, has in ((SIZE_MIB * 2, SIZE_MIB * 2), (SIZE_MIB, SIZE_MIB * 2)):
        await rootfs.unmount(MACHINE, kept="kept")
        root = Path(await rootfs.mount(MACHINE, SECOND, digest, kept="kept", size_mib=asked))
        assert (root / "new").read_text() == "mine"
        assert (tmp_path / "machines" / MACHINE / "disks/kept").stat().st_size == has << 20
    assert _fill(root) > SIZE_MIB


async def test_a_kept_layer_of_an_older_version_stays_a_plain_directory(
    rootfs: HostRootfs, digest: Digest, tmp_path: Path
) -> None:
    layer = tmp_path / "machines" / MACHINE / "layers/kept"
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True)
    (layer / "upper/new").write_text("mine")
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    assert (root / "new").read_text() == "mine" and not is_mounted(layer)
    await rootfs.unmount(MACHINE, kept="kept")
    assert (layer / "upper/new").exists() and not (layer.parents[1] / "disks/kept").exists()
    await rootfs.mount(MACHINE, FIRST, digest, kept="kept-2")
    assert not layer.exists() and is_mounted(layer.with_name("kept-2"))


def _left(tmp_path: Path) -> list[str]:
    """What there is of the machine's layers."""
    machine = tmp_path / "machines" / MACHINE
    return sorted(f"{kind}/{name}" for kind in ("disks", "layers") for name in os.listdir(machine / kind))


@pytest.mark.parametrize("kept", [None, "kept"])
@pytest.mark.parametrize("dies_at", ["imaged", "layered"])
async def test_a_mount_that_was_cut_short_leaves_nothing_and_is_done_again(
    rootfs: HostRootfs, digest: Digest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str, kept: str | None
) -> None:
    def die(name: str) -> None:
        if name == dies_at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hawker.worker.lifecycle.rootfs.inside", die)
        patch.setattr("hawker.host.mount.inside", die)
        with pytest.raises(KeyboardInterrupt):
            await rootfs.mount(MACHINE, FIRST, digest, kept=kept)
    assert await rootfs.strays() == ()
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept=kept))
    (root / "new").write_text("mine")
    await rootfs.unmount(MACHINE)
    assert _left(tmp_path) == [] and not is_mounted(root)


async def test_half_a_disk_that_a_crash_left_is_discarded(rootfs: HostRootfs, digest: Digest, tmp_path: Path) -> None:
    disks = tmp_path / "machines" / MACHINE / "disks"
    disks.mkdir(parents=True)
    for name in (FIRST, "I0", "kept.draft"):
        (disks / name).write_bytes(b"half")
    await rootfs.mount(MACHINE, FIRST, digest)
    assert _left(tmp_path) == [f"disks/{FIRST}", f"layers/{FIRST}"]


async def test_a_layer_whose_disk_was_unmounted_behind_our_back_is_mounted_again(
    rootfs: HostRootfs, digest: Digest, tmp_path: Path
) -> None:
    root = Path(await rootfs.mount(MACHINE, FIRST, digest, kept="kept"))
    (root / "new").write_text("mine")
    for target in (root, tmp_path / "machines" / MACHINE / "layers/kept"):
        unmount(target)
    assert (Path(await rootfs.mount(MACHINE, SECOND, digest, kept="kept")) / "new").read_text() == "mine"


async def test_layers_without_a_size_are_plain_directories(images: ImageCache, digest: Digest, tmp_path: Path) -> None:
    rootfs, machine = HostRootfs(tmp_path, images, 0), tmp_path / "machines" / MACHINE
    for kept in (None, "kept"):
        await rootfs.mount(MACHINE, FIRST, digest, kept=kept)
        assert not is_mounted(machine / "layers" / (kept or FIRST)) and list((machine / "disks").iterdir()) == []
    await rootfs.remove(MACHINE)
    await rootfs.withdraw()


async def test_a_size_without_room_for_a_filesystem_is_refused(tmp_path: Path, images: ImageCache) -> None:
    with pytest.raises(CannotStart, match=r"machine_disk_mib is 15.*needs 16"):
        HostRootfs(tmp_path, images, 15)
