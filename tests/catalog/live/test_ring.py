import pytest

from hawker.catalog.live.ring import Lagged, Ring, Told


def _put(ring: Ring, *lines: bytes) -> None:
    for line in lines:
        ring.put(Told(line, line))


def _lines(told: list[Told]) -> list[bytes]:
    return [one.line for one in told]


def test_events_from_where_one_joined() -> None:
    ring = Ring(5)
    _put(ring, b"a", b"b", b"c")
    assert ring.next == 8
    assert _lines(ring.beyond(5, 10)) == [b"a", b"b", b"c"]
    assert _lines(ring.beyond(6, 1)) == [b"b"]
    assert ring.beyond(8, 10) == []
    assert ring.beyond(100, 10) == []


def test_who_falls_out_is_told() -> None:
    ring = Ring(1, events=2)
    _put(ring, b"a", b"b", b"c")
    assert _lines(ring.beyond(2, 10)) == [b"b", b"c"]
    with pytest.raises(Lagged):
        ring.beyond(1, 10)


def test_bytes_are_bounded_too_but_one_event_stays() -> None:
    ring = Ring(1, size_bytes=10)
    _put(ring, b"x" * 6, b"y" * 6)
    assert _lines(ring.beyond(2, 10)) == [b"y" * 6]
    _put(ring, b"z" * 50)
    assert _lines(ring.beyond(3, 10)) == [b"z" * 50]
