"""Real filesystems, mounted from files. What overlays make of them is in the tests of machines' root filesystems."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.clock import SystemClock
from hawker.host.block import loops
from hawker.host.ext4 import Ext4Templates, device_of, read_superblock
from hawker.host.layer_disk import LayerDisks, ReadyLayers, discard_layer, prepare_kept
from hawker.host.mount import is_mounted, mounts, unmount
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]
MIB = 1 << 20


@pytest.fixture
async def disks(tmp_path: Path) -> AsyncIterator[LayerDisks]:
    yield LayerDisks(tmp_path / "templates")
    unmount(tmp_path / "mounts" / "layer")


async def test_a_fresh_layer_is_as_large_as_asked_and_not_larger(disks: LayerDisks, tmp_path: Path) -> None:
    await disks.mount_fresh(tmp_path / "disk", tmp_path / "mounts" / "layer", 32)
    with pytest.raises(OSError, match="No space left") as raised:
        (tmp_path / "mounts" / "layer" / "fill").write_bytes(bytes(33 * MIB))
    assert raised.value.errno == errno.ENOSPC
    (found,) = mounts(tmp_path / "mounts" / "layer")
    assert found.fstype == "ext4" and "nobarrier" in found.options


async def test_a_discarded_layer_leaves_no_mount_no_device_and_no_file(disks: LayerDisks, tmp_path: Path) -> None:
    file, layer, target = tmp_path / "disk", tmp_path / "mounts" / "layer", tmp_path / "target"
    await disks.mount_fresh(file, layer, 32)
    file.with_name("disk.draft").touch()
    for _ in range(2):
        discard_layer(file, layer, target, tmp_path / "trash")
    assert not (is_mounted(layer) or layer.exists() or file.exists() or file.with_name("disk.draft").exists())
    await eventually(lambda: not loops(tmp_path))


async def test_a_kept_layer_is_still_there_and_as_large_as_asked_last(disks: LayerDisks, tmp_path: Path) -> None:
    file, layer = tmp_path / "disk", tmp_path / "mounts" / "layer"
    for size in (32, 32, 64, 32):
        await disks.mount_kept(file, layer, size)
        (layer / f"{size}").touch()
        await _given_back(file, layer)
    found = read_superblock(file)
    assert found is not None and found.bytes == 64 * MIB
    await disks.mount_kept(file, layer, 32)
    await disks.mount_kept(file, layer, 32)
    assert (layer / "32").exists() and (layer / "64").exists() and len(mounts(layer)) == 1


async def _given_back(file: Path, layer: Path) -> None:
    """By all: a process that has just begun elsewhere on the host may have a copy of the mounts for a moment."""
    unmount(layer)
    await eventually(lambda: device_of(file) is None)


async def test_growth_that_was_cut_short_is_done_at_the_next_mount(disks: LayerDisks, tmp_path: Path) -> None:
    file, layer = tmp_path / "disk", tmp_path / "mounts" / "layer"
    await disks.mount_kept(file, layer, 32)
    await _given_back(file, layer)
    with file.open("r+b") as opened:
        opened.truncate(64 * MIB)
    await disks.mount_kept(file, layer, 64)
    found = read_superblock(file)
    assert found is not None and found.bytes == 64 * MIB


def test_directories_of_a_kept_layer_are_like_the_images_root(tmp_path: Path) -> None:
    lower, layer = tmp_path / "lower", tmp_path / "layer"
    lower.mkdir()
    lower.chmod(0o751)
    layer.mkdir()
    prepare_kept(lower, layer)
    (layer / "upper" / "new").touch()
    lower.chmod(0o700)
    prepare_kept(lower, layer)
    assert (layer / "upper").stat().st_mode & 0o7777 == 0o751
    assert sorted(path.name for path in layer.rglob("*")) == ["new", "upper", "work"]


async def test_nothing_is_left_of_templates(disks: LayerDisks, tmp_path: Path) -> None:
    await disks.mount_fresh(tmp_path / "disk", tmp_path / "mounts" / "layer", 32)
    await disks.tidy()
    assert [file.name for file in (tmp_path / "templates").iterdir()] == ["bare-32"]
    disks.clear()
    assert not (tmp_path / "templates").exists()


async def test_layers_are_made_ahead_of_time_and_none_is_given_twice(tmp_path: Path) -> None:
    disks, clock = LayerDisks(tmp_path / "templates", 32), SystemClock()
    layers = [tmp_path / "mounts" / str(number) for number in range(4)]
    async with anyio.create_task_group() as tasks:
        for number in (0, 1):  # missed, as nobody makes any yet: two are to be ready from now on
            await disks.mount_fresh(tmp_path / f"disk{number}", layers[number], 32)
        tasks.start_soon(disks.serve, clock)
        await eventually(lambda: disks.ready >= 2)
        assert [each.target for each in mounts(tmp_path)] == layers[:2]
        for number in (2, 3):
            await disks.mount_fresh(tmp_path / f"disk{number}", layers[number], 32)
        tasks.cancel_scope.cancel()
    sources = [each.source for each in mounts(tmp_path)]
    assert sorted(each.target for each in mounts(tmp_path)) == layers and len(set(sources)) == 4
    assert {file.name for _, file in loops(tmp_path)} == {f"disk{number}" for number in range(4)}
    (layers[3] / "file").write_text("of this machine")
    found = [sorted(path.name for path in layer.rglob("*")) for layer in layers[:3]]
    assert found == [["lost+found"], ["lost+found"], ["lost+found", "upper", "work"]]
    disks.clear()
    for number, layer in enumerate(layers):
        discard_layer(tmp_path / f"disk{number}", layer, tmp_path / "target", tmp_path / "trash")
    await eventually(lambda: not loops(tmp_path))
    assert not (tmp_path / "templates").exists()


async def test_a_layer_that_was_made_ahead_is_like_any_other(tmp_path: Path) -> None:
    templates = Ext4Templates(tmp_path / "templates")
    ready, clock = ReadyLayers(templates), SystemClock()
    template = await templates.of(32, journal=False)
    assert not ready.take(tmp_path / "first", tmp_path / "one")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ready.serve, 32, clock)
        await eventually(lambda: ready.take(tmp_path / "disk", tmp_path / "mounts" / "layer"))
        tasks.cancel_scope.cancel()
    ready.clear()
    by_hand = LayerDisks(tmp_path / "others")
    await by_hand.mount_fresh(tmp_path / "other", tmp_path / "made", 32)
    options = [mounts(tmp_path / name)[0].options for name in ("mounts/layer", "made")]
    unmount(tmp_path / "mounts" / "layer")
    unmount(tmp_path / "made")
    assert options[0] == options[1] and template.exists()
