"""Facts about encrypted volumes, but for the cipher itself, which this host's kernel may not have: where cryptsetup
would be asked, a device is played that passes everything on as it is. Files, filesystems and mounts are real.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import BadRequest, Fault, NotServed, Unavailable
from hawker.host.block import detach_loop, loops
from hawker.host.ext4 import may_grow_mounted
from hawker.host.luks import CommandResult, Luks
from hawker.host.mount import is_mounted, unmount
from hawker.ids import NodeId, new_volume_id
from hawker.record.volume import Fstype
from hawker.vault import Vault
from hawker.volume.disks import Disk
from hawker.volume.encryption import KEY_BYTES, Ciphers, VolumeKeys
from hawker.volume.host_copies import HostCopies
from hawker.volume.host_disks import HostDisks
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
CLOCK = SystemClock()
KEYS = VolumeKeys(Vault(bytes(32), CLOCK), CLOCK)
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Played:
    """Stands where cryptsetup would. What it opens is a loop device over the file; it takes only the right key."""

    def __init__(self, mapper: Path) -> None:
        self.mapper = mapper
        self.keys: dict[str, bytes] = {}
        self.calls: list[str] = []

    async def __call__(self, argv: Sequence[str], given: bytes) -> CommandResult:
        self.calls.append(argv[1])
        match argv[1]:
            case "luksFormat":
                self.keys[str(os.stat(argv[-1]).st_ino)] = given
            case "open":
                if self.keys[str(os.stat(argv[-2]).st_ino)] != given:
                    return CommandResult(2, "No key available with this passphrase.")
                (self.mapper / argv[-1]).symlink_to(_losetup("-f", "--show", argv[-2]))
            case "close":
                _losetup("-d", str((self.mapper / argv[-1]).readlink()))
                (self.mapper / argv[-1]).unlink()
        return CommandResult(0, "")


def _losetup(*arguments: str) -> str:
    return subprocess.run(["losetup", *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    mapper = tmp_path / "mapper"
    mapper.mkdir()
    (mapper / "control").touch()
    yield Played(mapper)
    for target in (tmp_path / "volumes").glob("*/mounted"):
        unmount(target)
    for device, _ in loops(tmp_path):
        detach_loop(device)


@pytest.fixture
def disks(tmp_path: Path, played: Played) -> HostDisks:
    luks = Luks(played, lambda _: "/sbin/cryptsetup", played.mapper)
    return HostDisks(tmp_path / "volumes", Ciphers(luks, KEYS, NodeId("0123abcd")))


def disk(size_mib: int = 32) -> Disk:
    volume_id = new_volume_id(CLOCK)
    return Disk(id=volume_id, size_bytes=size_mib * MIB, fstype=Fstype.EXT4, encrypted=True, key=KEYS.new(volume_id))


@pytest.mark.root
async def test_a_volume_is_made_mounted_written_and_given_back(disks: HostDisks, played: Played) -> None:
    made = disk()
    await disks.make(made)
    assert played.calls == ["luksFormat", "open", "close"]
    for letter in ("first", "second"):
        target = Path(await disks.mount(made))
        (target / letter).write_text("kept")
        assert await disks.strays() == ()
        await disks.unmount(made.id)
        await eventually(lambda: loops(played.mapper.parent) == [])  # who begins elsewhere may have a copy of the mount
    target = Path(await disks.mount(made))
    assert sorted(path.name for path in target.iterdir()) == ["first", "lost+found", "second"]
    await disks.remove(made.id)
    await eventually(lambda: loops(played.mapper.parent) == [])
    assert await disks.list() == []


@pytest.mark.root
async def test_the_device_of_a_volume_has_the_node_s_name(disks: HostDisks, played: Played) -> None:
    made = disk()
    await disks.make(made)
    await disks.mount(made)
    assert (played.mapper / f"hawker-0123abcd-{made.id}").exists()


@pytest.mark.root
@pytest.mark.parametrize("mounted", [True, False])
async def test_a_volume_grows_in_use_and_out_of_it(disks: HostDisks, played: Played, mounted: bool) -> None:
    made = disk()
    await disks.make(made)
    if mounted:
        await disks.mount(made)
    larger = Disk(id=made.id, size_bytes=96 * MIB, fstype=made.fstype, encrypted=True, key=made.key)
    assert await disks.grow(larger) == (not mounted or may_grow_mounted())
    await disks.unmount(made.id)  # without the capability, the next mount grows it, unless somebody has it still
    await eventually(lambda: loops(played.mapper.parent) == [])
    target = Path(await disks.mount(larger))
    assert os.statvfs(target).f_blocks * os.statvfs(target).f_frsize > 80 * MIB
    assert "resize" in played.calls


@pytest.mark.root
async def test_a_copy_opens_with_the_key_of_its_source(disks: HostDisks, played: Played, tmp_path: Path) -> None:
    source, copies = disk(), HostCopies(tmp_path / "snapshots", disks.file, disks.mount_point)
    await disks.make(source)
    (Path(await disks.mount(source)) / "letter").write_text("sealed")
    fork = Disk(
        id=new_volume_id(CLOCK), size_bytes=source.size_bytes, fstype=source.fstype, encrypted=True, key=source.key
    )
    await copies.fork(source.id, fork.id)
    played.keys[str(disks.file(fork.id).stat().st_ino)] = KEYS.open(source.key) if source.key else b""
    assert (Path(await disks.mount(fork)) / "letter").read_text() == "sealed"


@pytest.mark.root
async def test_another_key_does_not_open_it(disks: HostDisks) -> None:
    made = disk()
    await disks.make(made)
    other = Disk(id=made.id, size_bytes=made.size_bytes, fstype=made.fstype, encrypted=True, key=KEYS.new(made.id))
    with pytest.raises(Unavailable, match="No key available"):
        await disks.mount(other)
    assert not is_mounted(disks.mount_point(made.id))


@pytest.mark.root
async def test_a_mapping_a_killed_daemon_left_open_is_made_anew(
    disks: HostDisks, played: Played, tmp_path: Path
) -> None:
    """Killed between opening the draft and publishing it."""
    made = disk()
    left = tmp_path / "left"
    left.write_bytes(bytes(MIB))
    (played.mapper / f"hawker-0123abcd-{made.id}").symlink_to(_losetup("-f", "--show", str(left)))
    await disks.make(made)
    assert played.calls == ["close", "luksFormat", "open", "close"]
    assert is_mounted(Path(await disks.mount(made)))


async def test_a_host_that_cannot_says_what_it_lacks(tmp_path: Path, played: Played) -> None:
    without = HostDisks(tmp_path / "volumes", Ciphers(Luks(played, lambda _: None, played.mapper), KEYS, NodeId("n")))
    assert await without.lacks_encryption() == "cryptsetup is not installed: apt-get install cryptsetup-bin"
    with pytest.raises(Unavailable, match="cryptsetup is not installed"):
        await without.make(disk())
    assert not without.file(disk().id).exists()
    plain = HostDisks(tmp_path / "volumes")
    assert await plain.lacks_encryption() is not None
    with pytest.raises(NotServed):
        await plain.make(disk())


async def test_a_record_without_its_key_is_an_error_by_name(disks: HostDisks) -> None:
    broken = Disk(id=disk().id, size_bytes=32 * MIB, fstype=Fstype.EXT4, encrypted=True)
    with pytest.raises(BadRequest, match="has no key"):
        await disks.make(broken)


def test_each_volume_has_a_key_of_its_own_and_opens_it_again() -> None:
    first, second = (KEYS.new(new_volume_id(CLOCK)) for _ in range(2))
    assert len(KEYS.open(first)) == KEY_BYTES
    assert KEYS.open(first) == KEYS.open(first) != KEYS.open(second)


def test_a_key_opens_under_the_node_s_own_key_only() -> None:
    key = KEYS.new(new_volume_id(CLOCK))
    assert KEYS.open(key).hex() not in repr(key)
    with pytest.raises(Fault, match="put the file `key` of its data directory back"):
        VolumeKeys(Vault(bytes(31) + b"1", CLOCK), CLOCK).open(key)
