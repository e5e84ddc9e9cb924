from hypothesis import given
from hypothesis import strategies as st

from hawker.gossip.broadcasts import BroadcastQueue


def test_each_piece_is_told_so_often() -> None:
    broadcasts = BroadcastQueue()
    broadcasts.put("a", b"news")
    assert [broadcasts.take(100, 3) for _ in range(4)] == [[b"news"], [b"news"], [b"news"], []]
    assert not broadcasts


def test_newer_broadcast_replaces_the_older_and_begins_anew() -> None:
    broadcasts = BroadcastQueue()
    broadcasts.put("a", b"old")
    broadcasts.take(100, 2)
    broadcasts.put("a", b"new")
    assert broadcasts.take(100, 2) == [b"new"] and len(broadcasts) == 1


def test_the_least_told_goes_first_and_the_newest_of_those() -> None:
    broadcasts = BroadcastQueue()
    broadcasts.put("a", b"aaa")
    broadcasts.put("b", b"bbb")
    assert broadcasts.take(3, 9) == [b"bbb"]
    assert broadcasts.take(3, 9) == [b"aaa"]
    broadcasts.put("c", b"ccc")
    assert broadcasts.take(3, 9) == [b"ccc"]
    assert broadcasts.take(100, 9) == [b"ccc", b"aaa", b"bbb"]


def test_broadcast_that_does_not_fit_waits_and_holds_up_no_other() -> None:
    broadcasts = BroadcastQueue()
    broadcasts.put("small", b"s")
    broadcasts.put("big", b"b" * 50)
    assert broadcasts.take(20, 9) == [b"s"]
    assert broadcasts.take(0, 9) == []
    broadcasts.drop("small")
    assert len(broadcasts) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=1, max_size=20)), max_size=40), st.integers(0, 60))
def test_room_is_kept_and_everything_is_told_in_the_end(puts: list[tuple[int, bytes]], room: int) -> None:
    broadcasts, latest = BroadcastQueue(), dict[str, bytes]()
    for key, content in puts:
        broadcasts.put(str(key), content)
        latest[str(key)] = content
    told: list[bytes] = []
    room = max(room, 20)
    for _ in range(200):
        taken = broadcasts.take(room, 2)
        assert sum(map(len, taken)) <= room
        told += taken
    assert sorted(told) == sorted([*latest.values()] * 2) and not broadcasts
