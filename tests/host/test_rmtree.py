"""Facts about removing what others have made: links, names, depth."""

import os
from pathlib import Path

import pytest

from hawker.host.rmtree import remove_tree

DEEPER_THAN_A_STACK = 5000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    return made


def nest(directory: Path, depth: int) -> None:
    """Longer than any path may be."""
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT, dir_fd=fd))
    os.close(fd)


def test_any_depth_is_removed(tree: Path) -> None:
    nest(tree, DEEPER_THAN_A_STACK)
    remove_tree(tree)
    assert not tree.exists()


def test_target_of_a_link_is_kept(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tree / "below").mkdir()
    for place in (tree, tree / "below"):
        (place / "to-directory").symlink_to(tmp_path / "kept")
        (place / "to-file").symlink_to(tmp_path / "kept/file")
    remove_tree(tree)
    assert not tree.exists()
    assert (tmp_path / "kept/file").exists()


def test_names_that_are_taken_already_are_no_hindrance(tree: Path) -> None:
    for number in range(40):
        (tree / f"{number:x}" / f"{number + 1:x}" / "0").mkdir(parents=True)
        (tree / f"{number:x}" / "file").touch()
    remove_tree(tree)
    assert not tree.exists()


def test_sockets_pipes_and_odd_names_are_removed(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "a\nb").mkdir()
    os.mkdir(os.fsencode(tree) + b"/\xff\xfe")
    os.close(os.open(os.fsencode(tree) + b"/\xff\xfe/\xff", os.O_CREAT))
    remove_tree(tree)
    assert not tree.exists()


def test_nothing_there_is_no_error(tree: Path) -> None:
    remove_tree(tree / "none")
    assert tree.exists()
