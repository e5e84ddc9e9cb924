import pytest

from hawker.config.effective import Healthcheck
from hawker.config.machine import TcpHealthcheck
from hawker.worker.containers.health import Tally

CHECK = Healthcheck("web", "up", 1.0, 1.0, 0.0, 2, 3, True, TcpHealthcheck(port=80))


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ("", "warning"),
        ("+", "warning"),
        ("--", "warning"),
        ("+-+-+-", "warning"),
        ("++", "passing"),
        ("++--", "passing"),
        ("++---", "critical"),
        ("---", "critical"),
        ("---+", "critical"),
        ("---++", "passing"),
        ("++--+--+--", "passing"),
    ],
)
def test_only_answers_in_a_row_turn_a_check(answers: str, status: str) -> None:
    tally = Tally()
    for answer in answers:
        tally = tally.counted(CHECK, answer == "+")
    assert tally.status == status


def test_a_long_row_costs_no_more_than_a_short_one() -> None:
    tally = Tally()
    for _ in range(1000):
        tally = tally.counted(CHECK, True)
    assert tally == Tally(passing=True, good=2)
