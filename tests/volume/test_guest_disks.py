"""Volumes that no host mounts: real files, and a guest that is played."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.errors import BadRequest, NotServed, Unavailable, WrongState
from hawker.host import ext4
from hawker.host.ext4 import read_superblock
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from hawker.machine import State
from hawker.record.volume import GB, Fstype
from hawker.runtime.driver import VolumeUsage
from hawker.volume.attachment import volume_name
from hawker.volume.guest_disks import GuestDisks, GuestMovedFiles
from hawker.volume.moved_files import FilePlace, MovedFile
from tests.contract.disks import VOLUME, disk
from tests.volume.own_disk import own_disk
from tests.worker.lifecycle.guests import MACHINE, Guest

pytestmark = [pytest.mark.anyio, pytest.mark.root]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
async def disks(tmp_path: Path, guest: Guest) -> AsyncIterator[GuestDisks]:
    made = GuestDisks(tmp_path / "volumes", guest.driver, guest.use)
    await made.make(disk(1))
    yield made
    assert mounts(tmp_path) == []


def filesystem_bytes(disks: GuestDisks) -> int:
    found = read_superblock(disks.file(VOLUME))
    assert found is not None
    return found.bytes


def spoil(file: Path) -> None:
    """As a kernel leaves it that found an error in it."""
    debugfs = shutil.which("debugfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert debugfs, "it comes with e2fsck"
    subprocess.run([debugfs, "-w", "-R", "set_super_value state 2", str(file)], check=True, capture_output=True)


async def test_the_handed_over_disk_is_the_file_itself(disks: GuestDisks, guest: Guest) -> None:
    await guest.attach(State.STARTING)
    assert await disks.mount(disk(1)) == str(disks.file(VOLUME)) and await disks.mounted() == frozenset()
    await guest.run(disks.file(VOLUME))
    assert await disks.mounted() == {VOLUME} and await disks.strays() == ()


async def test_one_that_was_seen_damaged_is_mended_by_a_tool_that_is_nobody(disks: GuestDisks, guest: Guest) -> None:
    await guest.attach(State.STARTING)
    spoil(disks.file(VOLUME))
    await disks.mount(disk(1))
    found = read_superblock(disks.file(VOLUME))
    assert found is not None and found.whole and disks.file(VOLUME).stat().st_uid == 65534


async def test_a_guest_s_disk_is_never_checked_on_the_host(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    spoil(disks.file(VOLUME))
    await disks.mount(disk(1))
    await guest.suspend()
    await disks.mount(disk(1))
    found = read_superblock(disks.file(VOLUME))
    assert found is not None and not found.whole


async def test_one_that_nobody_has_grows_with_its_filesystem(disks: GuestDisks) -> None:
    assert await disks.grow(disk(3))
    assert await disks.size(VOLUME) == 3 * GB == filesystem_bytes(disks)
    assert await disks.grow(disk(2)) and await disks.size(VOLUME) == 3 * GB, "never smaller"


async def test_in_a_guest_the_file_grows_and_the_guest_is_told(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    assert await disks.grow(disk(2))
    assert (await disks.size(VOLUME), filesystem_bytes(disks)) == (2 * GB, GB), "the host touches no filesystem"
    assert list(guest.host.volume_sizes.values()) == [2 * GB]


async def test_of_a_suspended_guest_only_the_file_grows_until_its_next_launch(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    await guest.suspend()
    assert not await disks.grow(disk(2)) and guest.host.volume_sizes == {}
    guest.host.remove(next(iter(guest.host.machines())))
    await guest.turn(State.STARTING)
    await disks.mount(disk(2))
    assert filesystem_bytes(disks) == 2 * GB


async def test_while_its_machine_is_started_or_stopped_it_is_left_alone(disks: GuestDisks, guest: Guest) -> None:
    await guest.attach(State.STARTING)
    with pytest.raises(Unavailable, match="being started or stopped"):
        await disks.grow(disk(2))
    assert await disks.size(VOLUME) == GB


async def test_a_guest_that_ends_meanwhile_is_asked_again(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    seen = guest.driver.inspect

    async def ends_then(machine_id: str) -> object:
        found = await seen(machine_id)  # type: ignore[arg-type]
        guest.end()
        return found

    guest.driver.inspect = ends_then  # type: ignore[method-assign,assignment]
    with pytest.raises(Unavailable, match="has just ended"):
        await disks.grow(disk(2))


async def test_usage_is_what_the_guest_says_if_it_can_be_so(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    guest.host.volume_sizes[next(iter(guest.host.machines())), VOLUME.removeprefix("vol_")] = GB // 2
    usage = await disks.usage(disk(1))
    assert usage is not None and usage.bytes_total == GB // 2

    async def boasts(machine_id: str, name: str) -> VolumeUsage:
        return VolumeUsage(block_size=4096, blocks=1 << 40, blocks_free=0, blocks_avail=0)

    guest.driver.volume_usage = boasts  # type: ignore[method-assign]
    assert await disks.usage(disk(1)) is None


async def test_of_a_guest_that_cannot_be_asked_it_is_what_was_written_last(disks: GuestDisks, guest: Guest) -> None:
    await guest.run(disks.file(VOLUME))
    await guest.suspend()
    usage = await disks.usage(disk(1))
    assert usage is not None and 0.9 * GB < usage.bytes_total <= GB


async def test_raw_and_encrypted_ones_are_refused_with_the_reason(disks: GuestDisks) -> None:
    with pytest.raises(BadRequest, match="no filesystem"):
        await disks.mount(disk(1, fstype=Fstype.RAW))
    with pytest.raises(NotServed, match="not encrypted yet"):
        await disks.mount(replace(disk(1), encrypted=True))
    assert "not encrypted yet" in (await disks.lacks_encryption() or "")


async def test_a_disk_of_its_own_at_the_directory_of_volumes_is_no_stray_either(tmp_path: Path, guest: Guest) -> None:
    with own_disk(tmp_path) as directory:
        assert await GuestDisks(directory, guest.driver, guest.use).strays() == ()


async def test_files_are_trimmed_by_the_guest_that_has_them(disks: GuestDisks, guest: Guest, tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.touch()
    os.truncate(layer, 5 << 30)

    def place_of(file: MovedFile) -> FilePlace:
        return FilePlace(layer if file.layer else disks.file(VOLUME), tmp_path / "mounted")

    files = GuestMovedFiles(NodeId("0badcafe"), tmp_path / "volumes", place_of, guest.driver, guest.use)
    volume, root = MovedFile(VOLUME), MovedFile(MACHINE, "kept-3")
    assert await files.trim(volume, 0) is None and await files.trim(root, 0) is None
    await guest.run(disks.file(VOLUME))
    assert await files.trim(volume, 0) == ext4.TRIMMED_AT_ONCE
    assert await files.trim(volume, ext4.TRIMMED_AT_ONCE) is None, "it has no more"
    assert await files.trim(root, ext4.TRIMMED_AT_ONCE) == 2 * ext4.TRIMMED_AT_ONCE
    assert await files.trim(MovedFile(MACHINE, memory="state"), 0) is None
    name = volume_name(VOLUME)
    assert guest.host.trimmed == {(MACHINE, name): ext4.TRIMMED_AT_ONCE, (MACHINE, ""): 2 * ext4.TRIMMED_AT_ONCE}

    async def refuses(machine_id: MachineId, name: str, start: int, count: int) -> None:
        raise WrongState("the machine was started by an older version")

    guest.driver.trim_volume = refuses  # type: ignore[method-assign]
    assert await files.trim(volume, 0) is None
    await guest.suspend()
    assert await files.trim(volume, 0) is None
