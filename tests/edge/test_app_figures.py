"""What is counted of each app, and for how many apps."""

from hawker.edge.app_figures import MOST_APPS, AppFigures
from hawker.feed import RESPONSE_S
from hawker.ids import AppName

SHOP = AppName("shop")


def test_answers_are_counted_by_status_and_time() -> None:
    figures = AppFigures()
    for status, seconds in ((200, 0.001), (200, 0.005), (503, 60.0)):
        figures.answered(SHOP, status, seconds)
    figures.answered(None, 404, 0.1)
    figures.connected(SHOP)
    (told,) = figures.report()
    assert told.statuses == {"200": 2, "503": 1} and told.connects == 1
    assert told.buckets[0] == 2 and told.buckets[-1] == 1 and len(told.buckets) == len(RESPONSE_S) + 1
    assert told.seconds == 60.006


def test_the_app_that_was_served_longest_ago_is_forgotten() -> None:
    figures = AppFigures()
    for number in range(MOST_APPS):
        figures.answered(AppName(f"a{number}"), 200, 0.0)
    figures.answered(AppName("a0"), 200, 0.0)
    figures.answered(SHOP, 200, 0.0)
    known = {each.app for each in figures.report()}
    assert len(known) == MOST_APPS and {"a0", "shop"} <= known and "a1" not in known
