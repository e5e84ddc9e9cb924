"""A host whose crun refuses to run machines for a while."""

import subprocess
from pathlib import Path

import pytest

from hawker.chaos.daemon import Daemon
from hawker.chaos.moves.refusal import make_refusable, refusing
from hawker.clock import SystemClock

pytestmark = [pytest.mark.root]


def status(daemon: Daemon, *words: str) -> int:
    return subprocess.run(["crun", *words], env=daemon.environment, capture_output=True, check=False).returncode


def test_crun_refuses_to_run_only_while_it_is_told_so(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, SystemClock(), driver="container")
    make_refusable(daemon)
    with refusing(daemon):
        assert status(daemon, "--root", str(tmp_path), "run", "--help") == 1
        assert status(daemon, "--version") == 0
    assert status(daemon, "--root", str(tmp_path), "run", "--help") == 0
