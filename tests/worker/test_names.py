import re

from hawker.clock import ManualClock
from hawker.worker.names import new_name


def test_a_name_is_a_valid_host_name_and_rarely_the_same() -> None:
    clock = ManualClock()
    names = {new_name(clock) for _ in range(200)}
    assert len(names) > 190
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d{4}", name) for name in names)
