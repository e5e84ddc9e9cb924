"""The process ends where a test says so, and nowhere else."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = "from hawker.fsm.failpoint import reach; reach('make.cut.before'); reach('make.cut.after'); print('alive')"


@pytest.mark.parametrize(
    ("armed", "returncode"),
    [(None, 0), ("make.cut.after", -signal.SIGKILL), ("make.cut", 0), ("other.cut.after", 0)],
)
def test_the_process_is_killed_at_the_named_point_only(armed: str | None, returncode: int) -> None:
    env = {**os.environ, **({} if armed is None else {"HAWKER_FAILPOINT": armed})}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == returncode
    assert done.stdout == ("alive\n" if returncode == 0 else "")
