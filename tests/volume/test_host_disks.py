"""What volumes on a real host add to the contract that tests/contract holds them to: files that are whole or not there,
and no trace of a daemon that was killed in the middle.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.errors import BadRequest, Unavailable, WrongState
from hawker.host import ext4
from hawker.host.block import loops
from hawker.host.sparse import allocated_bytes
from hawker.record.volume import GB
from hawker.volume.host_disks import HostDisks
from tests.contract.disks import OTHER, VOLUME, disk, nothing_astray
from tests.host.strangers import stranger
from tests.host.test_ext4 import lose_inodes
from tests.volume.own_disk import own_disk
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root]


@pytest.fixture
async def disks(tmp_path: Path) -> AsyncIterator[HostDisks]:
    made = HostDisks(tmp_path / "volumes")
    yield made
    for volume_id in await made.list():
        await made.remove(volume_id)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


async def test_a_volume_is_sparse_and_a_daemon_that_was_killed_leaves_no_draft(disks: HostDisks) -> None:
    directory = disks.file(VOLUME).parent
    directory.mkdir(parents=True)
    (directory / "draft-of-an-earlier-daemon").touch()
    await disks.make(disk(100))
    assert names(directory) == ["disk"] and allocated_bytes(disks.file(VOLUME)) < 16 << 20


async def test_a_file_is_there_after_its_disk_was_given_back_and_grown(disks: HostDisks) -> None:
    await disks.make(disk(1))
    file = Path(await disks.mount(disk(1))) / "file"
    file.write_text("kept")
    await disks.unmount(VOLUME)
    assert not file.exists()
    await disks.grow(disk(3))
    assert file.parent.is_dir() and (Path(await disks.mount(disk(3))) / "file").read_text() == "kept"


async def test_a_volume_that_another_mount_namespace_holds_grows_as_one_in_use(disks: HostDisks) -> None:
    await disks.make(disk(1))
    await disks.mount(disk(1))
    with stranger():
        await disks.unmount(VOLUME)
        grown = await disks.grow(disk(2))
        assert grown is ext4.may_grow_mounted()
        usage = await disks.usage(disk(2))
        assert usage is not None and (usage.bytes_total > 1.8 * GB) is grown
    wait_for(lambda: loops(disks.file(VOLUME).parent) == [])
    assert await disks.grow(disk(2))
    usage = await disks.usage(disk(2))
    assert usage is not None and usage.bytes_total > 1.8 * GB


async def test_a_daemon_that_died_while_it_grew_a_volume_leaves_nothing_mounted(disks: HostDisks) -> None:
    await disks.make(disk(1))
    left = disks.file(VOLUME).parent / "growing"
    left.mkdir()
    ext4.mount_filesystem(disks.file(VOLUME), left)
    assert await disks.strays() == (str(left),) and await disks.mounted() == frozenset()
    grown = await disks.grow(disk(2))
    await nothing_astray(disks)
    wait_for(lambda: loops(disks.file(VOLUME).parent) == [])
    assert grown or await disks.grow(disk(2)), "a container that began had a copy of what was mounted"


async def test_a_stray_is_let_go_of_and_no_file_is_touched(disks: HostDisks) -> None:
    await disks.make(disk(1))
    left = disks.file(VOLUME).parent / "growing"
    left.mkdir()
    ext4.mount_filesystem(disks.file(VOLUME), left)
    for stray in await disks.strays():
        await disks.clear(stray)
    await nothing_astray(disks)
    assert await disks.size(VOLUME) == 1 << 30


async def test_a_disk_of_its_own_at_the_directory_of_volumes_is_no_stray(tmp_path: Path) -> None:
    with own_disk(tmp_path) as directory:
        assert await HostDisks(directory).strays() == ()


async def test_a_volume_that_an_earlier_daemon_s_tool_works_on_is_not_mounted(disks: HostDisks) -> None:
    await disks.make(disk(1))
    with ext4.locked(disks.file(VOLUME)), pytest.raises(Unavailable, match="still being checked"):
        await disks.mount(disk(1))
    await disks.mount(disk(1))


async def test_one_volume_is_worked_on_by_one_at_a_time_and_others_go_on(disks: HostDisks) -> None:
    await disks.make(disk(1))
    async with anyio.create_task_group() as tasks, disks.holding(VOLUME):
        tasks.start_soon(disks.mount, disk(1))
        await disks.make(disk(1, OTHER))
        assert await disks.mounted() == frozenset()
    assert await disks.mounted() == {VOLUME}


async def test_a_directory_that_is_no_volume_s_is_not_listed(disks: HostDisks, tmp_path: Path) -> None:
    (tmp_path / "volumes" / "lost+found").mkdir(parents=True)
    assert await disks.list() == []


async def test_a_volume_that_a_guest_wrote_is_never_mounted_not_even_to_grow(disks: HostDisks) -> None:
    await disks.make(disk(1))
    written = replace(disk(2), guest_written=True)
    with pytest.raises(WrongState, match="was the disk of a microVM"):
        await disks.mount(written)
    assert not await disks.grow(written)
    assert disks.file(VOLUME).stat().st_size == written.size_bytes and await disks.mounted() == frozenset()


async def test_a_volume_of_which_some_is_lost_is_mounted_once_it_is_to_be_repaired(disks: HostDisks) -> None:
    await disks.make(disk(1))
    file = Path(await disks.mount(disk(1))) / "file"
    file.write_text("lost with its inode")
    await disks.unmount(VOLUME)
    await nothing_astray(disks)
    lose_inodes(disks.file(VOLUME))
    with pytest.raises((BadRequest, OSError)):
        await disks.mount(disk(1))
        file.read_text()
    await disks.unmount(VOLUME)
    await nothing_astray(disks)
    mounted = Path(await disks.mount(replace(disk(1), repair=True)))
    (mounted / "written").write_text("kept")
    await disks.unmount(VOLUME)
    assert (Path(await disks.mount(disk(1))) / "written").read_text() == "kept"
