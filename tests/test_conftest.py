"""What counts as left on the host by a run."""

import pytest

from tests.conftest import was_there

GARBAGE = "/tmp/pytest-of-x/garbage-cc7b3d56-25a2-4a2c-a8c5-77838ca619df/popen-gw0/judged0"
OLD = "/tmp/pytest-of-x/pytest-7/popen-gw0/judged0"


@pytest.mark.parametrize(
    ("stray", "expected"),
    [
        (f"mount {GARBAGE}/rootfs", True),
        (f"loop loop2 of {GARBAGE}/disk (deleted)", True),
        (f"mount {GARBAGE}/other", False),
        ("mount /tmp/pytest-of-x/pytest-8/popen-gw0/judged0/rootfs", False),
        ("process 12 hawker presence", False),
    ],
)
def test_trace_in_a_directory_that_was_renamed_is_of_an_earlier_run(stray: str, expected: bool) -> None:
    before = [f"mount {OLD}/rootfs", f"loop loop2 of {OLD}/disk", "process 11 hawker presence"]
    assert was_there(stray, before) is expected
