from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.gossip.contract import Fate
from hawker.gossip.frames import (
    FRAME_BYTES,
    META_BYTES,
    Ack,
    ForgetNode,
    Frame,
    Join,
    JoinOk,
    JoinRefused,
    KeyringIs,
    MalformedFrame,
    MemberClaim,
    MetaIs,
    MetaReq,
    Nack,
    Note,
    Ping,
    PingReq,
    Sync,
    batches,
    decode,
    encode,
    payload_of,
)
from hawker.ids import NodeId

u32, u63 = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
nodes = st.text("0123456789abcdef", min_size=8, max_size=8).map(NodeId)
addresses = st.text(min_size=3, max_size=60)
texts = st.text(max_size=100)
claims = st.builds(
    MemberClaim,
    node=nodes,
    address=addresses,
    incarnation=u63,
    fate=st.sampled_from(Fate),
    epoch=u63,
    boot=u63,
    meta=u63,
    by=nodes,
    age_s=u63,
)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Ping, seq=u32, to=nodes, at=u63, view=u63, keys=u63),
    st.builds(Ack, seq=u32, of=nodes, at=u63, view=u63, keys=u63),
    st.builds(PingReq, seq=u32, to=nodes, address=addresses),
    st.builds(Nack, seq=u32),
    claims,
    st.builds(MetaReq, node=nodes),
    st.builds(MetaIs, node=nodes, content=st.binary(max_size=META_BYTES)),
    st.builds(Join, cluster=texts),
    st.builds(JoinOk, cluster=texts, known=st.none() | claims),
    st.builds(JoinRefused, code=texts, text=texts),
    st.builds(ForgetNode, node=nodes, fence=u63, at=u63),
    st.builds(
        KeyringIs,
        version=u63,
        primary=st.integers(0, 255),
        keys=st.dictionaries(st.integers(0, 255), st.binary(min_size=32, max_size=32), min_size=1, max_size=4),
    ),
    st.builds(Sync, want=st.booleans()),
    st.builds(Note, body=st.binary(max_size=1100)),
)


@given(st.lists(frames, max_size=5))
def test_frames_come_back_as_they_went(sent: list[Frame]) -> None:
    assert decode(payload_of(*sent)) == sent


@given(st.binary(max_size=1200))
def test_any_bytes_are_frames_or_malformed(payload: bytes) -> None:
    with suppress(MalformedFrame):
        decode(payload)


@given(frames, st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_frame_is_read_or_malformed(frame: Frame, at: int, byte: int) -> None:
    payload = bytearray(encode(frame))
    payload[at % len(payload)] = byte
    with suppress(MalformedFrame):
        decode(bytes(payload))


def test_a_type_of_the_future_is_passed_over() -> None:
    assert decode(b"\xc8\x00\x02hi" + encode(Nack(seq=7))) == [Nack(seq=7)]


def test_a_field_of_the_future_is_passed_over() -> None:
    body = msgspec.msgpack.encode([7, "of the future"])
    assert decode(bytes([4, 0, len(body)]) + body) == [Nack(seq=7)]


@pytest.mark.parametrize(
    "payload",
    [
        b"\x01",
        b"\x04\x00\x09\x91",
        b"\x04\x00\x02\x91\xff",
        b"\x04\x00\x01\xc0",
        encode(MetaReq(node=NodeId("00000001"))).replace(b"00000001", b"0000000G"),
        encode(MetaReq(node=NodeId("00000001"))).replace(b"00000001", b"0000001\n"),
    ],
)
def test_frame_that_does_not_fit_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode(payload)


def test_a_key_of_another_length_is_malformed() -> None:
    body = msgspec.msgpack.encode([1, 1, {1: b"short"}])
    with pytest.raises(MalformedFrame):
        decode(bytes([12, 0, len(body)]) + body)


def test_a_frame_fits_a_datagram_or_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        encode(Note(body=bytes(FRAME_BYTES + 1)))


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=30), st.integers(50, 200))
def test_batches_keep_order_and_room(parts: list[bytes], room: int) -> None:
    filled = batches(parts, room)
    assert b"".join(filled) == b"".join(parts)
    assert all(0 < len(batch) <= room for batch in filled)
