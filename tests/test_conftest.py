"""What counts as left on the host by a run, and what `make test` runs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import was_there

GARBAGE = "/tmp/pytest-of-x/garbage-cc7b3d56-25a2-4a2c-a8c5-77838ca619df/popen-gw0/judged0"
ROOT = Path(__file__).parent.parent
EARLIER = "/tmp/pytest-of-x/garbage-5e853bc3-17fc-4d36-982c-aebcd4a82009/popen-gw0/judged0"
OLD = "/tmp/pytest-of-x/pytest-7/popen-gw0/judged0"


@pytest.mark.parametrize(
    ("stray", "expected"),
    [
        (f"mount {GARBAGE}/rootfs", True),
        (f"loop loop2 of {GARBAGE}/disk (deleted)", True),
        (f"mount {GARBAGE}/again", True),
        (f"mount {GARBAGE}/other", False),
        ("mount /tmp/pytest-of-x/pytest-8/popen-gw0/judged0/rootfs", False),
        ("process 12 hawker presence", False),
    ],
)
def test_trace_in_a_directory_that_was_renamed_is_of_an_earlier_run(stray: str, expected: bool) -> None:
    before = [
        f"mount {OLD}/rootfs",
        f"loop loop2 of {OLD}/disk",
        f"mount {EARLIER}/again",
        "process 11 hawker presence",
    ]
    assert was_there(stray, before) is expected


@pytest.mark.parametrize(("part", "left_out"), [("", True), ("-k store", True), ("tests/tidy", False)])
def test_rules_of_style_run_in_make_test_only_if_asked_for(part: str, left_out: bool) -> None:
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    asked = ["make", "-n", "test", f"ARGS={part}"]
    shown = subprocess.run(asked, cwd=ROOT, env=alone, capture_output=True, text=True, check=True, timeout=60)
    command = shown.stdout.splitlines()[-1]
    assert command.endswith(part) and ("--ignore=tests/tidy" in command) is left_out
