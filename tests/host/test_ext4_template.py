"""Real filesystems in files."""

import os
from pathlib import Path

import pytest

from hawker.host.ext4 import Ext4Templates, read_superblock
from hawker.host.sparse import allocated_bytes

pytestmark = pytest.mark.anyio
MIB = 1 << 20


@pytest.fixture
def templates(tmp_path: Path) -> Ext4Templates:
    return Ext4Templates(tmp_path / "layers")


@pytest.mark.parametrize("journal, name, most_kib", [(True, "ext4-64", 8192), (False, "bare-64", 256)])
async def test_a_template_is_an_empty_filesystem_that_takes_next_to_nothing(
    templates: Ext4Templates, journal: bool, name: str, most_kib: int
) -> None:
    file = await templates.of(64, journal=journal)
    found = read_superblock(file)
    assert file.name == name and found is not None and found.bytes == file.stat().st_size == 64 * MIB
    assert allocated_bytes(file) <= most_kib << 10


async def test_a_template_is_made_once(templates: Ext4Templates) -> None:
    file = await templates.of(64)
    before = file.stat().st_ino
    assert (await templates.of(64)).stat().st_ino == before


async def test_of_many_sizes_those_stay_that_were_used_last(templates: Ext4Templates, tmp_path: Path) -> None:
    await templates.of(64)
    (tmp_path / "layers" / "draft-of-a-dead-daemon").touch()
    old = [tmp_path / "layers" / f"bare-{size}" for size in range(100, 120)]
    for number, file in enumerate(old):
        file.touch()
        os.utime(file, (number, number))
    await templates.tidy()
    assert sorted(os.listdir(tmp_path / "layers")) == sorted(["ext4-64", *(file.name for file in old[5:])])


async def test_nothing_is_left_of_templates_that_are_cleared(templates: Ext4Templates, tmp_path: Path) -> None:
    templates.clear()
    await templates.of(64)
    templates.clear()
    assert not (tmp_path / "layers").exists()
