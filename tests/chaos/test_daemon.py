"""The daemon to be hurt: lives on one directory, of machines that are processes, for anyone."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.chaos.daemon import Daemon
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.failpoint import LISTING
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, SystemClock(), driver="process")
    yield daemon
    assert daemon.withdraw() == []


def test_one_directory_has_many_lives(daemon: Daemon) -> None:
    first = daemon.start().node_id
    assert daemon.alive and daemon.ready and daemon.url.startswith("http://127.0.0.1:")
    daemon.kill()
    assert not daemon.alive and daemon.ended() == -signal.SIGKILL
    assert daemon.start("--no-ephemeral").node_id == first
    assert daemon.stop() >= 0
    assert daemon.reached() == []


def test_a_life_that_is_refused_says_why(daemon: Daemon) -> None:
    with pytest.raises(Unavailable, match="status 2: error: there is no driver"):
        daemon.start("--driver", "none")
    assert daemon.ended() == 2


def test_a_life_that_does_not_end_is_told(daemon: Daemon) -> None:
    daemon.start()
    with pytest.raises(Unavailable, match="did not end"):
        daemon.ended(0.01)


def test_residue_of_daemon_is_told(daemon: Daemon) -> None:
    daemon.start()
    staged = Path("/dev/shm") / f"hawker-0-{daemon.marks[-1]}-left"
    daemon.stop()
    daemon.launch("--ephemeral", failpoint=LISTING).wait_ready()
    staged.mkdir()
    try:
        wait_for(lambda: daemon.withdraw(gone_within_s=0) == [f"staged tree {staged}"])  # once all else has gone
    finally:
        staged.rmdir()
