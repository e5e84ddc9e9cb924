from hypothesis import given
from hypothesis import strategies as st

from hawker.gossip.replay import WINDOW, Window


def test_a_counter_is_admitted_once() -> None:
    window = Window()
    assert window.admits(5)
    window.add(5)
    assert not window.admits(5)
    assert window.admits(4) and window.admits(6)


def test_what_is_older_than_the_window_is_refused() -> None:
    window = Window()
    window.add(WINDOW + 10)
    assert not window.admits(10)
    assert window.admits(11)


def test_a_leap_forgets_what_is_behind() -> None:
    window = Window()
    for counter in (0, 1, 2**64 - 1):
        window.add(counter)
    assert not window.admits(1) and not window.admits(2**64 - 1)
    assert window.admits(2**64 - 2)


@given(st.lists(st.integers(0, 60), max_size=200), st.integers(1, 40))
def test_as_a_set_would_within_the_window(counters: list[int], size: int) -> None:
    window, seen, greatest = Window(size), set[int](), -1
    for counter in counters:
        expected = counter > greatest - size and counter not in seen
        assert window.admits(counter) == expected
        if expected:
            window.add(counter)
            seen.add(counter)
            greatest = max(greatest, counter)
