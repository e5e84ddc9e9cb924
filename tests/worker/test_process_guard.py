"""The warden of a host's edge, as a daemon finds it: none, one that lives, and one that another daemon has left."""

import fcntl
import os
from pathlib import Path

from hawker.clock import SystemClock
from hawker.worker.process_guard import ProcessGuard


def guard(folder: Path) -> ProcessGuard:
    found = ProcessGuard(folder, folder / "edge", SystemClock(), "edge")
    found.prepare()
    return found


def test_a_warden_is_there_while_it_holds_the_lock(tmp_path: Path) -> None:
    found = guard(tmp_path)
    assert not found.is_there
    lock = os.open(tmp_path / "edge" / "lock", os.O_RDWR | os.O_CREAT)
    os.pwrite(lock, b"4242\n", 0)
    assert not found.is_there, "a number in a file is no process"
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert found.is_there
    os.close(lock)
    assert not found.is_there
