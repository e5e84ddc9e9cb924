from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.secure_stream import (
    HELLO_BYTES,
    LENGTH_BYTES,
    MESSAGE_BYTES,
    RECORD_BYTES,
    TAG_BYTES,
    BrokenStream,
    MessageKind,
    SecureStream,
    StreamHello,
    head_of,
    hello_of,
    length_of,
    records_of,
)
from hawker.ids import NodeId

RING = new_keyring(ManualClock())


def hello(name: str = "a", boot: int = 1, key: int = 1, nonce: bytes = b"n") -> StreamHello:
    return StreamHello(node=NodeId(name * 8), boot=boot, key=key, nonce=nonce * 16)


CALLER, ANSWERER = hello("a"), hello("b")


def ends(ring: GossipKeyring = RING, cluster: str = "c", other: str = "c") -> tuple[SecureStream, SecureStream]:
    calling = SecureStream(ring, cluster, caller=CALLER, answerer=ANSWERER, calling=True)
    return calling, SecureStream(RING, other, caller=CALLER, answerer=ANSWERER, calling=False)


def opened(end: SecureStream, record: bytes) -> bytes:
    return end.open(record[:LENGTH_BYTES], record[LENGTH_BYTES:])


def test_a_hello_comes_back() -> None:
    assert hello_of(CALLER.encoded()) == CALLER and len(CALLER.encoded()) == HELLO_BYTES


@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_any_bytes_are_a_hello_or_broken(data: bytes) -> None:
    with suppress(BrokenStream):
        hello_of(data)


@given(st.lists(st.binary(min_size=1, max_size=100), max_size=5))
def test_records_come_as_they_went_in_both_directions(records: list[bytes]) -> None:
    calling, answering = ends()
    for record in records:
        assert opened(answering, calling.seal(record)) == record
        assert opened(calling, answering.seal(record)) == record


def test_a_record_counts_once_and_in_its_place() -> None:
    calling, answering = ends()
    first, second = calling.seal(b"1"), calling.seal(b"2")
    with pytest.raises(BrokenStream):
        opened(answering, second)
    assert opened(answering, first) == b"1"
    with pytest.raises(BrokenStream):
        opened(answering, first)


def test_a_record_of_another_connection_is_nothing_here() -> None:
    calling, _ = ends()
    other = SecureStream(RING, "c", caller=CALLER, answerer=hello("b", nonce=b"m"), calling=False)
    with pytest.raises(BrokenStream):
        opened(other, calling.seal(b"1"))


def test_record_of_one_direction_does_not_open_in_the_other() -> None:
    calling, _ = ends()
    with pytest.raises(BrokenStream):
        opened(calling, calling.seal(b"1"))


def test_another_cluster_or_key_is_broken() -> None:
    for calling, answering in (ends(other="d"), ends(ring=new_keyring(ManualClock(seed=3)))):
        with pytest.raises(BrokenStream):
            opened(answering, calling.seal(b"1"))


def test_a_key_that_is_not_in_the_ring_is_refused() -> None:
    with pytest.raises(BrokenStream, match="no key 9"):
        SecureStream(RING, "c", caller=hello(key=9), answerer=hello("b", key=9), calling=False)
    with pytest.raises(BrokenStream):
        SecureStream(RING, "c", caller=hello(key=1), answerer=hello("b", key=2), calling=True)


@pytest.mark.parametrize("length", [0, TAG_BYTES, RECORD_BYTES + TAG_BYTES + 1, 2**32 - 1])
def test_a_length_is_judged_before_anything_is_read(length: int) -> None:
    with pytest.raises(BrokenStream):
        length_of(length.to_bytes(LENGTH_BYTES, "big"))


@pytest.mark.parametrize("size", [0, 1, RECORD_BYTES - 9, RECORD_BYTES - 8, RECORD_BYTES * 2 + 5])
def test_a_message_is_its_parts(size: int) -> None:
    records = list(records_of(MessageKind.ASK, bytes(size), 1.5))
    opening = head_of(records[0])
    assert (opening.kind, opening.size, opening.within_s) == (MessageKind.ASK, size, 1.5)
    assert all(0 < len(record) <= RECORD_BYTES for record in records)
    assert len(opening.part) + sum(map(len, records[1:])) == size


@given(st.binary(max_size=40))
def test_any_bytes_open_a_message_or_are_broken(record: bytes) -> None:
    with suppress(BrokenStream):
        assert head_of(record).size <= MESSAGE_BYTES


def test_a_message_that_is_too_long_is_refused_by_its_first_record() -> None:
    record = next(records_of(MessageKind.ASK, bytes(1000)))
    with pytest.raises(BrokenStream, match="1000 bytes"):
        head_of(record, most=999)
