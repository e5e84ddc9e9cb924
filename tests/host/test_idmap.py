"""Facts about ids of a machine's own. What overlays make of them: test_mount."""

import os
from pathlib import Path

import pytest

from hawker.host.idmap import RANGE, acting_as, attach_tree, mapped_tree, mapping
from hawker.host.mount import unmount

pytestmark = pytest.mark.root
FIRST = 0x40000000


def test_a_process_that_acts_as_a_range_s_root_makes_files_of_it_and_is_itself_again(tmp_path: Path) -> None:
    with acting_as(FIRST):
        (tmp_path / "its").touch()
        os.chown(tmp_path / "its", FIRST, FIRST)
    (tmp_path / "mine").touch()
    assert ((tmp_path / "its").stat().st_uid, (tmp_path / "mine").stat().st_uid) == (FIRST, 0)


def test_a_mapped_tree_shows_the_disk_s_ids_as_the_range_s(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "file").touch()
    os.chown(source / "file", 7, 8)
    with mapping(FIRST) as namespace:
        tree = mapped_tree(source, namespace)
        attach_tree(tree, target)
        os.close(tree)
    try:
        found = (target / "file").stat()
        assert (found.st_uid, found.st_gid) == (FIRST + 7, FIRST + 8) and RANGE == 65_536
    finally:
        unmount(target)
