"""Real mounts of real block images, through `HostRootfs`."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.config.effective import EffectiveTempDir
from hawker.host.block import loops
from hawker.host.mount import is_mounted, mounts, unmount
from hawker.ids import Digest, InstanceId, MachineId
from hawker.image.cache import ImageCache
from hawker.image.limits import ImageSettings
from hawker.worker.lifecycle.host_adapters import ContainerMounts, ContainerRoot
from hawker.worker.lifecycle.rootfs import HostRootfs
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.usefixtures("nothing_stray")]
MACHINE = MachineId("00000000000001")
FIRST, SECOND = InstanceId("I1"), InstanceId("I2")
MEMORY, DISK = EffectiveTempDir("fast", "memory", 1), EffectiveTempDir("large", "disk", 8)
MIB = 1 << 20


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Host:
    def __init__(self, rootfs: HostRootfs, image: Digest, directory: Path) -> None:
        self.rootfs = rootfs
        self.directory = directory
        self._roots = [ContainerRoot(name=name, image=image) for name in ("web", "db")]

    async def mount(self, instance: InstanceId = FIRST) -> ContainerMounts:
        return await self.rootfs.mount_containers(MACHINE, instance, self._roots, [MEMORY, DISK])

    def mounted(self) -> list[str]:
        machine = self.directory / "machines" / MACHINE
        """Beside the layer that all of it is in."""
        found = [str(each.target.relative_to(machine)) for each in mounts(machine)]
        return sorted(name for name in found if not name.startswith("layers/"))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    images = ImageCache(tmp_path / "images", ImageSettings(allow_local=True), SystemClock())
    await images.open()
    rootfs = HostRootfs(tmp_path, images, 64)
    yield Host(rootfs, (await images.pull("hawker/hello")).digest, tmp_path)
    await rootfs.remove(MACHINE)
    await rootfs.withdraw()
    await images.aclose()


async def test_each_container_has_a_root_of_its_own(host: Host) -> None:
    found = await host.mount()
    web, db = Path(found.roots["web"]), Path(found.roots["db"])
    (web / "new").write_text("mine")
    assert (web / "bin/hello").is_file() and (db / "bin/hello").is_file()
    assert not (db / "new").exists()
    assert host.mounted() == ["containers/db", "containers/web", "volumes/fast", "volumes/large"]


async def test_the_machine_itself_has_an_empty_root(host: Host) -> None:
    found = await host.mount()
    assert os.listdir(found.machine) == []


async def test_a_volume_takes_as_much_as_it_may_and_no_more(host: Host) -> None:
    found = await host.mount()
    for name, size in (("fast", 1), ("large", 8)):
        file = Path(found.volumes[name]) / "file"
        with pytest.raises(OSError, match="No space"), file.open("wb") as writing:
            for _ in range(2 * size):
                writing.write(bytes(MIB))
                writing.flush()
        assert size * MIB * 0.4 < file.stat().st_size <= size * MIB


async def test_everybody_in_the_machine_may_write_to_a_volume(host: Host) -> None:
    for volume in (await host.mount()).volumes.values():
        assert os.stat(volume).st_mode & 0o7777 == 0o1777
        assert os.listdir(volume) == []


async def test_the_same_instance_finds_what_it_wrote(host: Host) -> None:
    found = await host.mount()
    for place in (*found.roots.values(), *found.volumes.values()):
        (Path(place) / "new").touch()
    assert await host.mount() == found
    assert all((Path(place) / "new").exists() for place in (*found.roots.values(), *found.volumes.values()))


async def test_a_new_instance_finds_nothing_of_the_last_one(host: Host) -> None:
    found = await host.mount()
    for place in (*found.roots.values(), *found.volumes.values()):
        (Path(place) / "new").touch()
    fresh = await host.mount(SECOND)
    assert not any((Path(place) / "new").exists() for place in (*fresh.roots.values(), *fresh.volumes.values()))


async def test_a_root_left_half_made_is_made_anew(host: Host) -> None:
    found = await host.mount()
    (Path(found.volumes["large"]) / "new").touch()
    unmount(Path(found.roots["db"]))
    again = await host.mount()
    assert again == found
    assert not (Path(again.volumes["large"]) / "new").exists()
    assert len(host.mounted()) == 4


async def test_a_stopped_machine_leaves_no_mount_and_no_device(host: Host) -> None:
    await host.mount()
    for _ in range(2):
        await host.rootfs.unmount(MACHINE)
        assert host.mounted() == []
    await eventually(lambda: loops(host.directory / "machines") == [])  # whoever looks for a free one may have it open
    assert os.listdir(host.directory / "machines" / MACHINE / "layers") == []


async def test_a_root_of_containers_is_no_stray(host: Host) -> None:
    await host.mount()
    assert await host.rootfs.strays() == ()
    assert await host.rootfs.visible() == {MACHINE}


async def test_a_machine_is_removed_whole(host: Host) -> None:
    found = await host.mount()
    await host.rootfs.remove(MACHINE)
    assert not is_mounted(Path(found.roots["web"]))
    assert await host.rootfs.list() == []


async def test_a_root_that_was_taken_away_is_missed(host: Host) -> None:
    found = await host.mount()
    unmount(Path(found.roots["db"]))
    assert await host.rootfs.visible() == frozenset()


async def test_a_volume_alone_that_was_left_is_seen(host: Host) -> None:
    found = await host.mount()
    for root in map(Path, found.roots.values()):
        unmount(root)
        root.rmdir()
    assert await host.rootfs.visible() == {MACHINE}
