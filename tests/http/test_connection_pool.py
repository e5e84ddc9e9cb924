"""Who gets a connection, and which: without a socket and without a clock."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.http.connection_pool import ConnectionPool


def pool(max_in_use: int = 0, max_idle_s: float = 15.0) -> ConnectionPool[str, str]:
    return ConnectionPool(max_in_use=max_in_use, max_idle_s=max_idle_s)


def test_connection_used_last_is_taken_first() -> None:
    one = pool()
    one.put("a", 1.0)
    one.put("b", 2.0)
    assert [one.take(), one.take(), one.take()] == ["b", "a", None]


def test_connection_idle_for_15_s_expires() -> None:
    one = pool()
    one.put("a", 1.0)
    one.put("b", 2.0)
    assert one.expire(15.9) == []
    assert one.expire(16.0) == ["a"]
    assert one.take() == "b"


def test_discarded_connection_is_not_taken() -> None:
    one = pool()
    one.put("a", 1.0)
    one.discard("a")
    one.discard("b")
    assert one.take() is None


def test_cleared_pool_returns_its_idle_connections() -> None:
    one = pool()
    one.put("a", 1.0)
    assert one.clear() == ["a"] and one.take() is None


def test_pool_without_a_limit_lets_everyone_enter() -> None:
    one = pool()
    assert all(one.enter() for _ in range(1000))
    assert one.leave() is None


def test_requests_above_the_limit_wait_first_come_first_served() -> None:
    one = pool(max_in_use=1)
    assert one.enter() and not one.enter()
    one.queue("first")
    one.queue("second")
    assert (one.leave(), one.leave(), one.leave()) == ("first", "second", None)
    assert one.enter()


def test_waiter_that_gives_up_is_passed_over() -> None:
    one = pool(max_in_use=1)
    one.enter()
    one.queue("first")
    one.queue("second")
    assert one.abandon("first") is None
    assert one.leave() == "second"


def test_waiter_that_gives_up_as_its_turn_comes_passes_it_on() -> None:
    one = pool(max_in_use=1)
    one.enter()
    one.queue("first")
    one.queue("second")
    assert one.leave() == "first"
    assert one.abandon("first") == "second"
    assert one.leave() is None and one.enter()


@given(st.integers(1, 4), st.lists(st.integers(0, 2), max_size=60))
def test_never_more_requests_under_way_than_allowed_and_none_is_forgotten(limit: int, moves: list[int]) -> None:
    one: ConnectionPool[str, int] = ConnectionPool(max_in_use=limit, max_idle_s=15.0)
    under_way, waiting = 0, list[int]()
    for number, move in enumerate(moves):
        if move == 0:
            if one.enter():
                assert not waiting
                under_way += 1
            else:
                one.queue(number)
                waiting.append(number)
        elif move == 1 and under_way:
            following = one.leave()
            assert following == (waiting.pop(0) if waiting else None)
            under_way -= following is None
        elif move == 2 and waiting:
            assert one.abandon(waiting.pop()) is None
        assert under_way <= limit
    assert not waiting or under_way == limit
