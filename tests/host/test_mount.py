"""Facts about mounts. Those marked root mount for real, below the test's own directory."""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hawker.host import mount as mount_module
from hawker.host.block import attach_loop, filesystem_of
from hawker.host.idmap import RANGE, mapping
from hawker.host.mount import (
    bind,
    discard_overlay,
    empty_trash,
    fresh_overlay,
    is_mounted,
    kept_overlay,
    mount,
    mount_image,
    mount_overlay,
    mounts,
    parse_mountinfo,
    shows_layer,
    unmount,
)
from tests.waiting import wait_for

_LINE = r"98 23 0:28 /a /data/with\040space\134x rw,relatime shared:7 - overlay over\054lay rw,lowerdir=/l"


def test_mountinfo_is_parsed_and_unescaped() -> None:
    [found] = parse_mountinfo(_LINE + "\n")
    assert found.target == Path("/data/with space\\x")
    assert (found.fstype, found.source, found.options) == ("overlay", "over,lay", "rw,lowerdir=/l")


def test_mountinfo_without_optional_fields_is_parsed() -> None:
    [found] = parse_mountinfo("31 23 0:28 / /sys rw - tmpfs tmpfs rw\n")
    assert (found.target, found.fstype) == (Path("/sys"), "tmpfs")


def test_non_ascii_mount_points_are_read_as_written() -> None:
    [found] = parse_mountinfo("31 23 0:28 / /données/é rw - tmpfs tmpfs rw\n")
    assert found.target == Path("/données/é")


def test_proc_is_mounted_and_a_plain_directory_is_not(tmp_path: Path) -> None:
    assert is_mounted(Path("/proc"))
    assert not is_mounted(tmp_path)
    assert not is_mounted(tmp_path / "nope")


@pytest.fixture
def area(tmp_path: Path) -> Iterator[Path]:
    """A directory whose mounts are undone."""
    yield tmp_path
    for found in reversed(mounts(tmp_path)):
        unmount(found.target)


def _image(area: Path, kind: str) -> Path:
    tree, file = area / "tree", area / f"image.{kind}"
    (tree / "etc").mkdir(parents=True, exist_ok=True)
    (tree / "etc" / "motd").write_text("hello")
    if kind == "erofs":
        command = ["mkfs.erofs", "-zlz4", "--quiet", str(file), str(tree)]
    else:
        command = ["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(file), "4M"]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.mark.root
@pytest.mark.parametrize("kind", ["erofs", "ext4"])
def test_image_is_mounted_read_only_and_once(area: Path, kind: str) -> None:
    file, target = _image(area, kind), area / "mounted"
    assert filesystem_of(file) == kind
    mount_image(file, target)
    mount_image(file, target)
    assert (target / "etc/motd").read_text() == "hello"
    assert len(mounts(target)) == 1
    with pytest.raises(OSError, match="Read-only"):
        (target / "new").write_text("x")
    unmount(target)
    unmount(target)
    assert mounts(target) == []


@pytest.mark.root
def test_loop_device_goes_away_with_its_mount(area: Path) -> None:
    file, target = _image(area, "erofs"), area / "mounts" / "mounted"  # of such a name hosts of a street let go
    target.mkdir(parents=True)
    with attach_loop(file) as device:
        mount(device, target, "erofs", 1)
    backing = Path("/sys/block", Path(device).name, "loop/backing_file")
    assert backing.read_text().strip() == str(file)
    unmount(target)
    wait_for(lambda: not backing.exists())  # whoever looks for a free device may have it open


@pytest.mark.root
def test_fresh_overlay_drops_what_the_last_one_wrote(area: Path) -> None:
    lower, layer, target, trash = area / "lower", area / "layer", area / "root", area / "trash"
    lower.mkdir(mode=0o711)
    (lower / "kept").write_text("below")
    fresh_overlay(lower, layer, target, trash)
    (target / "kept").write_text("changed")
    (target / "new").write_text("written")
    fresh_overlay(lower, layer, target, trash)
    assert (target / "kept").read_text() == "below"
    assert not (target / "new").exists()
    assert target.stat().st_mode & 0o7777 == lower.stat().st_mode & 0o7777
    assert len(mounts(target)) == 1


@pytest.mark.root
@pytest.mark.anyio
async def test_discarded_layer_is_removed_with_the_trash(area: Path) -> None:
    lower, layer, target, trash = area / "lower", area / "layer", area / "root", area / "trash"
    lower.mkdir()
    fresh_overlay(lower, layer, target, trash)
    (target / "new").write_text("written")
    discard_overlay(layer, target, trash)
    discard_overlay(layer, target, trash)
    assert mounts(target) == []
    assert not layer.exists()
    assert len(list(trash.iterdir())) == 1
    await empty_trash(trash)
    assert not trash.exists()


@pytest.mark.anyio
async def test_two_may_empty_the_trash_at_once(tmp_path: Path) -> None:
    trash = tmp_path / "trash"
    for tree in range(20):
        for branch in range(20):
            (trash / f"{tree}" / f"{branch:x}" / "0" / "1" / "2").mkdir(parents=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(empty_trash, trash)
    assert not trash.exists()


@pytest.mark.root
def test_a_kept_layer_is_still_there_over_another_image(area: Path) -> None:
    old, new, layer, target = area / "old", area / "new", area / "layers/kept", area / "root"
    layer.parent.mkdir()
    for lower, text in ((old, "old"), (new, "new")):
        (lower / "dir/deep").mkdir(parents=True)
        for name in ("touched", "untouched", "removed", "dir/deep/file"):
            (lower / name).write_text(text)
        (lower / f"only-{text}").write_text(text)
    kept_overlay(old, layer, target)
    assert shows_layer(target, old, layer) and not shows_layer(target, new, layer)
    (target / "touched").write_text("mine")
    (target / "removed").unlink()
    (target / "dir/mine").write_text("mine")
    shutil.copytree(target / "dir", target / "moved")
    unmount(target)
    assert not shows_layer(target, old, layer)
    kept_overlay(new, layer, target)
    assert {path.name: path.read_text() for path in target.iterdir() if path.is_file()} == {
        "touched": "mine",
        "untouched": "new",
        "only-new": "new",
    }
    assert (target / "dir/mine").read_text() == "mine" and (target / "dir/deep/file").read_text() == "new"
    assert (target / "moved/deep/file").read_text() == "old"


@pytest.mark.root
def test_a_kept_layer_that_is_mounted_is_left_alone(area: Path) -> None:
    lower, layer, target = area / "lower", area / "layers/kept", area / "root"
    lower.mkdir(mode=0o750)
    layer.parent.mkdir()
    kept_overlay(lower, layer, target)
    before = target.stat().st_dev
    kept_overlay(lower, layer, target)
    assert target.stat().st_dev == before and len(mounts(target)) == 1
    assert target.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in layer.parent.iterdir()] == ["kept"]


@pytest.mark.root
@pytest.mark.parametrize("name", ["plain", "a,b", "a:b", "a\\b", "a b"])
def test_a_kept_layer_is_recognized_whatever_it_is_called(area: Path, name: str) -> None:
    lower, layer, target = area / name / "lower", area / name / "layers/kept", area / "root"
    lower.mkdir(parents=True)
    layer.parent.mkdir()
    kept_overlay(lower, layer, target)
    assert shows_layer(target, lower, layer)


@pytest.mark.root
@pytest.mark.parametrize("name", ["plain", "a,b", "a:b", "a\\b", "a b"])
def test_overlay_takes_any_directory_name(area: Path, name: str) -> None:
    here = area / name
    for directory in ("lower", "upper", "work"):
        (here / directory).mkdir(parents=True)
    (here / "lower/file").write_text("x")
    mount_overlay(here / "lower", here / "upper", here / "work", here / "root")
    mount_overlay(here / "lower", here / "upper", here / "work", here / "root")
    assert (here / "root/file").read_text() == "x"
    assert [found.target for found in mounts(here / "root")] == [here / "root"]


# --- a machine's own ids

FIRST = 0x40000000


def _as_machine(root: Path, work: Callable[[], None]) -> None:
    """In a child that is root of the range's namespace, in this root directory."""
    with mapping(FIRST) as namespace:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.chroot(root)
                assert ctypes.CDLL(None).setns(namespace, 0x10000000) == 0
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
                work()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _prepared(area: Path) -> tuple[Path, Path, Path, Path]:
    lower = area / "lower"
    lower.mkdir(mode=0o755)
    for name in ("owned", "changed"):
        (lower / name).write_text("below")
        os.chown(lower / name, 5, 6)
    return lower, area / "layers/one", area / "root", area / "trash"


@pytest.mark.root
@pytest.mark.parametrize("attached", [False, True])
def test_a_mapped_overlay_is_the_range_s_and_its_layer_is_not(
    area: Path, attached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower, layer, target, trash = _prepared(area)
    if attached:  # as kernels before 6.15 want it
        monkeypatch.setattr("hawker.host.mount._mount_mapped", _refusing_once(mount_module._mount_mapped))
    fresh_overlay(lower, layer, target, trash, first_id=FIRST)
    assert (target.stat().st_uid, (target / "owned").stat().st_uid) == (FIRST, FIRST + 5)

    def work() -> None:
        Path("/made").write_text("mine")
        Path("/changed").write_text("mine")
        os.chown("/made", 33, 34)
        os.unlink("/owned")
        assert os.stat("/changed").st_gid == 6

    _as_machine(target, work)
    made, changed = (layer / "upper/made").stat(), (layer / "upper/changed").stat()
    assert (made.st_uid, made.st_gid, changed.st_uid, changed.st_gid) == (33, 34, 5, 6)
    assert [each.target for each in mounts(area)] == [target]
    assert sorted(path.name for path in area.iterdir()) == ["layers", "lower", "root"]


def _refusing_once(then: Callable[..., None]) -> Callable[..., None]:
    tried = iter([True])

    def mount(*arguments: Any) -> None:
        if next(tried, False):
            raise OSError(errno.EINVAL, "detached layers are not taken")
        then(*arguments)

    return mount


@pytest.mark.root
def test_a_kept_layer_may_be_given_to_another_range(area: Path) -> None:
    lower, layer, target, _ = _prepared(area)
    layer.parent.mkdir()
    kept_overlay(lower, layer, target, first_id=FIRST)
    assert shows_layer(target, lower, layer, first_id=FIRST)
    assert not shows_layer(target, lower, layer, first_id=FIRST + RANGE) and not shows_layer(target, lower, layer)
    _as_machine(target, Path("/mine").touch)
    unmount(target)
    kept_overlay(lower, layer, target, first_id=FIRST + RANGE)
    assert (target / "mine").stat().st_uid == FIRST + RANGE
    unmount(target)
    kept_overlay(lower, layer, target)
    assert (target / "mine").stat().st_uid == 0 and shows_layer(target, lower, layer)


@pytest.mark.root
def test_a_mapped_overlay_names_no_directory_of_the_host(area: Path) -> None:
    lower, layer, target, trash = _prepared(area)
    fresh_overlay(lower, layer, target, trash, first_id=FIRST)
    [line] = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(target) in line]
    assert str(area) not in line.partition(" - ")[2]


@pytest.mark.root
def test_bind_shows_a_directory_read_only(area: Path) -> None:
    target = area / "devices"
    target.mkdir()
    bind(Path("/dev/shm"), target, read_only=True)
    assert os.statvfs(target).f_flag & os.ST_RDONLY
    assert not os.statvfs("/dev/shm").f_flag & os.ST_RDONLY


@pytest.mark.root
def test_bind_within_one_filesystem_is_seen_and_undone(area: Path) -> None:
    source, target = area / "source", area / "target"
    source.mkdir()
    target.mkdir()
    bind(source, target)
    bind(source, target)
    assert is_mounted(target)
    assert len(mounts(target)) == 1
    unmount(target)
    assert not is_mounted(target)


@pytest.mark.root
def test_failed_mount_names_the_reason_and_the_place(area: Path) -> None:
    with pytest.raises(OSError, match=r"mount overlay: .*root"):
        mount_overlay(area / "no", area / "such", area / "dirs", area / "root")
