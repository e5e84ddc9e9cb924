"""Facts about bound network namespaces."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.host import netns
from hawker.host.mount import unmount

pytestmark = pytest.mark.root


def _current() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "netns" / "machine"
    yield path
    netns.delete(path)


def test_a_namespace_is_another_than_the_hosts_and_stays(path: Path) -> None:
    seen: list[int] = []
    netns.create(path, lambda _: seen.append(_current()))
    assert seen[0] != _current()
    assert netns.inside(path, _current) == seen[0]
    assert netns.exists(path)


def test_configuring_is_given_the_namespace(path: Path) -> None:
    given: list[int] = []
    netns.create(path, lambda descriptor: given.append(os.fstat(descriptor).st_ino))
    assert given == [netns.inside(path, _current)]


def test_a_namespace_that_could_not_be_configured_is_not_there(path: Path) -> None:
    def fail(_: int) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        netns.create(path, fail)
    assert not netns.exists(path)


def test_delete_can_be_repeated(path: Path) -> None:
    netns.create(path, lambda _: None)
    netns.delete(path)
    netns.delete(path)
    assert not path.exists()


def test_file_that_is_no_namespace_cannot_be_entered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="network namespace"):
        netns.inside(tmp_path / "file", _current)


def test_a_namespace_that_was_unbound_is_bound_again_from_a_process_in_it(path: Path) -> None:
    netns.create(path, lambda _: None)
    inode = netns.inside(path, _current)
    with netns.inside(path, lambda: subprocess.Popen(["sleep", "1000"])) as sleeper:
        unmount(path)
        assert not netns.exists(path)
        for _ in range(2):
            netns.rebind(path, sleeper.pid)
        assert netns.inside(path, _current) == inode
        sleeper.kill()


def test_work_inside_is_given_the_namespace(path: Path) -> None:
    netns.create(path, lambda _: None)
    inode = netns.inside_with(path, lambda descriptor: os.fstat(descriptor).st_ino)
    assert inode == netns.inside(path, _current)
