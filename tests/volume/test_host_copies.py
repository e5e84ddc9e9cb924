"""Facts about copies of volumes on this host: real files, and a real file system that is mounted and written to."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import Damaged, NotFound, Unavailable
from hawker.host.block import attach_loop
from hawker.host.ext4 import mount_device
from hawker.host.mount import is_mounted, unmount
from hawker.host.sparse import Drafted, draft
from hawker.ids import SnapshotId, VolumeId, new_snapshot_id, new_volume_id
from hawker.volume import host_copies as module
from hawker.volume.host_copies import HostCopies, remove_bases
from tests.fixtures.dying_disk import dying_disk
from tests.host.strangers import stranger

pytestmark = pytest.mark.anyio
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Host:
    """A directory with volumes in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.snapshots = root / "snapshots"
        self.copies = HostCopies(self.snapshots, self.file, self.mount_point)

    def file(self, volume_id: VolumeId) -> Path:
        return self.root / volume_id / "disk"

    def mount_point(self, volume_id: VolumeId) -> Path:
        return self.root / volume_id / "mounted"

    def snapshot(self, snapshot_id: SnapshotId) -> Path:
        return self.snapshots / snapshot_id

    def volume(self, content: bytes = b"data") -> VolumeId:
        volume_id = new_volume_id(SystemClock())
        self.mount_point(volume_id).mkdir(parents=True)
        self.file(volume_id).write_bytes(content)
        return volume_id

    def mounted(self) -> VolumeId:
        volume_id = self.volume()
        file = str(self.file(volume_id))
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", file, "16M"], check=True)
        subprocess.run(["mount", "-o", "loop", file, str(self.mount_point(volume_id))], check=True)
        return volume_id


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for mount_point in tmp_path.glob("*/mounted"):
        unmount(mount_point)


def new_id() -> SnapshotId:
    return new_snapshot_id(SystemClock())


async def test_a_snapshot_is_what_the_volume_held_and_stays_so(host: Host) -> None:
    volume_id, snapshot_id = host.volume(b"then"), new_id()
    assert await host.copies.take(volume_id, snapshot_id) == 4096
    host.file(volume_id).write_bytes(b"now")
    assert await host.copies.take(volume_id, snapshot_id) == 4096
    assert host.snapshot(snapshot_id).read_bytes() == b"then"
    assert await host.copies.list() == [snapshot_id]


@pytest.mark.root
async def test_a_mounted_volume_is_copied_as_of_one_moment_and_goes_on(host: Host, tmp_path: Path) -> None:
    volume_id, snapshot_id = host.mounted(), new_id()
    inside = host.mount_point(volume_id) / "letter"
    inside.write_text("not on the disk yet")
    await host.copies.take(volume_id, snapshot_id)
    inside.write_text("later")
    assert _letter_in(host.snapshot(snapshot_id)) == "not on the disk yet"


def _letter_in(image: Path) -> str:
    """Read without mounting: also without mending anything."""
    subprocess.run(["e2fsck", "-fn", str(image)], check=True, capture_output=True)
    return subprocess.run(
        ["debugfs", "-R", "cat letter", str(image)], check=True, capture_output=True, text=True
    ).stdout


async def test_a_volume_is_restored_and_forked_with_a_file_of_its_own(host: Host) -> None:
    volume_id, snapshot_id = host.volume(b"then"), new_id()
    await host.copies.take(volume_id, snapshot_id)
    host.file(volume_id).write_bytes(b"now")
    restored, forked = new_volume_id(SystemClock()), new_volume_id(SystemClock())
    for _ in range(2):
        await host.copies.restore(snapshot_id, restored)
        await host.copies.fork(volume_id, forked)
    assert (host.file(restored).read_bytes(), host.file(forked).read_bytes()) == (b"then", b"now")
    assert [path.name for path in host.file(forked).parent.iterdir()] == ["disk"]


async def test_a_disk_filled_already_is_left_as_it_is(host: Host) -> None:
    source, target, snapshot_id = host.volume(b"source"), host.volume(b"written since"), new_id()
    await host.copies.take(source, snapshot_id)
    await host.copies.restore(snapshot_id, target)
    await host.copies.fork(source, target)
    assert host.file(target).read_bytes() == b"written since"


async def test_a_volume_that_is_mounted_in_between_is_copied_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    volume_id, snapshot_id = host.volume(b"before"), new_id()
    tries: list[Path] = []

    async def written_meanwhile(source: Path, target: Path) -> Drafted:
        done = await draft(source, target)
        if not tries:
            host.file(volume_id).write_bytes(b"mounted, written to, unmounted")
        tries.append(target)
        return done

    monkeypatch.setattr(module, "draft", written_meanwhile)
    await host.copies.take(volume_id, snapshot_id)
    assert len(tries) == 2
    assert host.snapshot(snapshot_id).read_bytes() == b"mounted, written to, unmounted"


async def test_a_volume_that_is_never_still_is_not_copied(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    volume_id, snapshot_id = host.volume(), new_id()

    async def written_meanwhile(source: Path, target: Path) -> Drafted:
        done = await draft(source, target)
        host.file(volume_id).write_bytes(b"again")
        return done

    monkeypatch.setattr(module, "draft", written_meanwhile)
    with pytest.raises(Unavailable, match="mounted anew"):
        await host.copies.take(volume_id, snapshot_id)
    assert await host.copies.list() == []
    await host.copies.drop(snapshot_id)
    assert list(host.snapshots.iterdir()) == []


@pytest.mark.root
async def test_a_volume_whose_device_nobody_can_hold_still_is_not_copied(host: Host) -> None:
    volume_id = host.volume(bytes(MIB))
    with attach_loop(host.file(volume_id)), pytest.raises(Unavailable, match="held by others of this host"):
        await host.copies.take(volume_id, new_id())


@pytest.mark.root
async def test_a_volume_that_its_disk_cannot_read_is_not_copied_and_says_where(tmp_path: Path) -> None:
    with dying_disk(tmp_path) as disk:
        host, snapshot_id = Host(disk.root), new_id()
        volume_id = host.volume(os.urandom(4 * MIB))
        lost = disk.cut(host.file(volume_id), 3 * MIB)
        with pytest.raises(Damaged, match=f"{volume_id} cannot be read at byte {lost}"):
            await host.copies.take(volume_id, snapshot_id)
        assert not host.snapshot(snapshot_id).exists() and await host.copies.list() == []


async def test_a_missing_disk_cannot_be_copied(host: Host) -> None:
    nothing = new_volume_id(SystemClock())
    with pytest.raises(NotFound, match="volume"):
        await host.copies.take(nothing, new_id())
    with pytest.raises(NotFound, match="snapshot"):
        await host.copies.restore(new_id(), nothing)
    assert await host.copies.list() == []
    await host.copies.drop(new_id())


async def test_room_is_what_a_copy_takes_and_the_disk_has(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    volume_id = host.volume(b"x" * MIB)
    monkeypatch.setattr(module, "shares_blocks", lambda _: False)
    room = await host.copies.room(volume_id)
    assert room.needed_bytes == MIB
    assert room.missing_bytes == 0 < room.free_bytes
    crowded = HostCopies(host.snapshots, host.file, host.mount_point, floor_bytes=1 << 60)
    assert (await crowded.room(volume_id)).missing_bytes == MIB
    monkeypatch.setattr(module, "shares_blocks", lambda _: True)
    sharing = HostCopies(host.snapshots, host.file, host.mount_point, floor_bytes=1 << 60)
    assert (await sharing.room(volume_id)).missing_bytes == 0


def _freeze(mount_point: Path) -> None:
    subprocess.run(["fsfreeze", "--freeze", str(mount_point)], check=True)


@pytest.mark.root
async def test_a_volume_that_was_left_frozen_is_thawed_at_boot(host: Host) -> None:
    volume_id = host.mounted()
    mount_point = host.mount_point(volume_id)
    _freeze(mount_point)
    await host.copies.mend(frozenset({volume_id}))
    (mount_point / "letter").write_text("goes through")
    await host.copies.mend(frozenset({volume_id}))
    assert is_mounted(mount_point)


@pytest.mark.root
async def test_a_disk_a_strangers_namespace_holds_is_copied_as_one_moment(host: Host) -> None:
    volume_id = host.mounted()
    (host.mount_point(volume_id) / "file").write_text("kept")
    with stranger():
        unmount(host.mount_point(volume_id))
        assert not is_mounted(host.mount_point(volume_id))
        snapshot = new_id()
        assert await host.copies.take(volume_id, snapshot) > 0
        assert not is_mounted(host.root / volume_id / "growing")
    copied = host.root / "copied"
    copied.mkdir()
    with attach_loop(host.snapshot(snapshot), writable=True) as device:
        mount_device(device, copied, "copy")
        try:
            assert (copied / "file").read_text() == "kept"
        finally:
            unmount(copied)


def test_copies_kept_for_the_next_backups_go_and_nothing_else(tmp_path: Path) -> None:
    for name in ("vol_a/disk", "vol_a/saved-1", "vol_b/disk", "vol_b/saved-2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    remove_bases(tmp_path, "vol_a")
    assert sorted(each.name for each in tmp_path.glob("*/*")) == ["disk", "disk", "saved-2"]
    remove_bases(tmp_path)
    assert [each.name for each in tmp_path.glob("*/*")] == ["disk", "disk"]
    remove_bases(tmp_path / "none")
