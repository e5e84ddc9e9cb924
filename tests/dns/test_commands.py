"""The resolver as a process: it begins once in a data directory, where a node has been."""

import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.main import main
from hawker.host.own_user import WRITES, make_folder
from hawker.ids import NodeId
from hawker.names import BOUND
from hawker.place import Place


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The resolver enters its folder, and may open more: afterwards we are where we were, as we were."""
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_resolver_begins_where_a_node_has_been(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dns", "--data-dir", str(tmp_path)]) == ExitStatus.USAGE
    assert "`hawker up` makes it" in capsys.readouterr().err


def test_a_second_resolver_leaves_the_first_one_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    make_folder(place.dns, None)
    place.remember(NodeId("0000000a"))
    (place.dns / WRITES / BOUND).write_text("hw0000nabcdefg\n")
    lock = os.open(place.dns / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["dns", "--data-dir", str(tmp_path)]) == ExitStatus.OK
    finally:
        os.close(lock)
    assert (place.dns / WRITES / BOUND).read_text(), "what the first one serves"


def test_the_resolver_ends_where_neither_a_network_nor_a_daemon_is_left(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, most))
    place = Place(tmp_path)
    place.dns.mkdir()
    place.remember(NodeId("0000000a"))
    assert main(["dns", "--data-dir", str(tmp_path)]) == ExitStatus.OK
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most), "its connections need more than is usual"
