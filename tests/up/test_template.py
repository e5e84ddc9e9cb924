"""Templates as processes of their own: the daemon is a few lines of each test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.observe.watchdog import EXIT_STATUS
from hawker.up.template import pause_s
from tests.waiting import wait_for

_WITHIN_S = 300.0  # it begins a Python of its own, and imports what a node does
_PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from hawker.clock import SystemClock
from hawker.up.template import Template

file = Path(sys.argv[1])

def daemon():
    born = len(file.read_text().splitlines()) + 1 if file.exists() else 1
    with file.open("a") as out:
        print(os.getpid(), file=out, flush=True)
    return live(born)

{live}

status = Template(daemon, SystemClock()).run()
sys.exit(status)
"""
_SERVES = """
def live(born):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    print("ready", born, flush=True)
    while True:
        signal.pause()
"""


@contextmanager
def _template(directory: Path, live: str = _SERVES) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", _PROGRAM.format(live=live), str(directory / "daemons")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _daemons(directory: Path) -> list[int]:
    return [int(line) for line in (directory / "daemons").read_text().splitlines()]


def _is_there(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_daemon_has_a_successor(tmp_path: Path) -> None:
    with _template(tmp_path) as template:
        assert _said(template) == "ready 1"
        os.kill(_daemons(tmp_path)[0], signal.SIGKILL)
        assert _said(template) == "ready 2"
        os.kill(_daemons(tmp_path)[1], signal.SIGSEGV)
        assert _said(template) == "ready 3"
        assert template.poll() is None


def test_signal_to_stop_reaches_the_daemon_and_its_status_comes_back(tmp_path: Path) -> None:
    with _template(tmp_path) as template:
        assert _said(template) == "ready 1"
        template.terminate()
        assert template.wait(_WITHIN_S) == 7
        assert len(_daemons(tmp_path)) == 1


@pytest.mark.parametrize("status", [0, 1, 2])
def test_daemon_that_ends_by_itself_has_no_successor(tmp_path: Path, status: int) -> None:
    with _template(tmp_path, f"def live(born): return {status}") as template:
        assert template.wait(_WITHIN_S) == status
        assert len(_daemons(tmp_path)) == 1


def test_daemon_that_raises_has_no_successor_and_says_so_once(tmp_path: Path) -> None:
    with _template(tmp_path, "def live(born): raise SystemExit('no room')") as template:
        _, said = template.communicate(timeout=300)
        assert (template.returncode, said.strip()) == (1, "no room")


def test_daemon_that_its_watchdog_has_ended_has_a_successor(tmp_path: Path) -> None:
    with _template(tmp_path, f"def live(born): os._exit({EXIT_STATUS} if born == 1 else 3)") as template:
        assert template.wait(_WITHIN_S) == 3
        assert len(_daemons(tmp_path)) == 2


def test_killed_template_takes_its_daemon_along(tmp_path: Path) -> None:
    with _template(tmp_path) as template:
        assert _said(template) == "ready 1"
        (daemon,) = _daemons(tmp_path)
        template.kill()
        assert template.wait(_WITHIN_S) == -signal.SIGKILL
        wait_for(lambda: not _is_there(daemon))


def test_signal_to_stop_that_kills_the_daemon_kills_the_template_in_the_same_way(tmp_path: Path) -> None:
    live = "def live(born):\n    print('ready', flush=True)\n    while True:\n        signal.pause()\n"
    with _template(tmp_path, live) as template:
        assert _said(template) == "ready"
        template.terminate()
        assert template.wait(_WITHIN_S) == -signal.SIGTERM
        assert len(_daemons(tmp_path)) == 1


def test_template_that_waits_before_the_next_daemon_stops_at_once(tmp_path: Path) -> None:
    with _template(tmp_path, "def live(born): os.kill(os.getpid(), signal.SIGKILL)") as template:
        wait_for(lambda: len(_daemons(tmp_path)) >= 5 if (tmp_path / "daemons").exists() else False)
        template.terminate()
        assert template.wait(_WITHIN_S) in (0, -signal.SIGTERM, -signal.SIGKILL)


def test_pauses_grow_from_none_to_30_s() -> None:
    assert [pause_s(deaths) for deaths in range(7)] == [0, 0, 0, 0, 0.25, 0.5, 1]
    assert pause_s(5000) == 30.0


def test_modules_a_node_imports_start_no_thread() -> None:
    code = "import os, hawker.up.node; print(len(os.listdir('/proc/self/task')))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"
