from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.ids import first_ulid, new_machine_id, new_node_id, new_ulid, next_ulid


def test_a_machine_id_is_14_lowercase_hex_characters() -> None:
    machine_id = new_machine_id(ManualClock())
    assert len(machine_id) == 14 and set(machine_id) <= set("0123456789abcdef")


def test_a_node_id_is_8_lowercase_hex_characters() -> None:
    assert len(new_node_id(ManualClock())) == 8


def test_ulids_sort_by_time() -> None:
    clock = ManualClock()
    first = new_ulid(clock)
    clock.advance(0.001)
    assert len(first) == 26 and first < new_ulid(clock)


@given(st.integers(0, 50), st.integers(0, 3))
def test_the_next_ulid_is_always_greater(seed: int, trailing: int) -> None:
    clock = ManualClock(seed=seed)
    last = new_ulid(clock)[: 26 - trailing] + "Z" * trailing
    for _ in range(5):
        following = next_ulid(clock, last)
        assert following > last and len(following) == 26
        last = following


def test_the_first_ulid_of_a_moment_divides_what_was_named_before_from_what_came_after() -> None:
    clock = ManualClock()
    before = new_ulid(clock)
    clock.advance(0.001)
    moment = first_ulid(clock.now())
    assert len(moment) == 26 and before < moment <= new_ulid(clock)
