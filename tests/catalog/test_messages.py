from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog import messages
from hawker.catalog.change import Scope
from hawker.catalog.messages import (
    Bulk,
    DeltaPart,
    Digest,
    ForgetOrigin,
    Head,
    Ihave,
    Message,
    PositionAnswer,
    PositionQuery,
    Pull,
    PullAnswer,
    Txs,
    Vector,
    VectorEntry,
    Want,
    decode,
    encode,
)
from tests.catalog.kit import A, delta, op, push, tx

HEAD = Head(origin=A, epoch=1, version=2)
ENTRY = VectorEntry(origin=A, epoch=1, applied=2, fence=0)
ALL: list[Message] = [
    push(tx(1), tx(2), hop=1),
    Ihave(scope=Scope.REGION, heads=(HEAD,)),
    Pull(scope=Scope.GLOBAL, wants=(Want(origin=A, epoch=1, after=-1),), max_bytes=9),
    Txs(txs=(tx(1), tx(2))),
    DeltaPart(delta=delta(0, 3)),
    Bulk(scope=Scope.REGION, heads=(HEAD, HEAD)),
    PullAnswer(txs=(tx(1),), deltas=(delta(0, 2),), more=True),
    Digest(scope=Scope.REGION, digest=bytes(256)),
    Vector(scope=Scope.REGION, buckets=(1, 2), entries=(ENTRY,), back=True),
    PositionQuery(scope=Scope.GLOBAL),
    PositionAnswer(scope=Scope.GLOBAL, entry=ENTRY),
    ForgetOrigin(origin=A, epoch=4, hop=0),
]


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


def test_long_messages_are_compressed() -> None:
    message = push(tx(1, op(state="started " * 500)))
    assert len(encode(message)) < 300
    assert decode(encode(message)) == message


def test_values_keep_their_types() -> None:
    message = push(tx(1, op("x", "y").__class__("t", (A, 1, 2.5, None, b"\0"), ("c",), ("",))))
    assert decode(encode(message)) == message


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_raise_one_error(raw: bytes) -> None:
    with suppress(ValueError):
        decode(raw)


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x63abc", b"\x01\xc1", b"\x81not zstd"])
def test_the_unreadable_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        decode(raw)


def test_message_that_would_unpack_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = encode(push(tx(1, op(state="x" * 10_000))))
    monkeypatch.setattr(messages, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="unpack"):
        decode(raw)


def test_fields_that_are_newer_are_passed_over() -> None:
    raw = encode(PositionQuery(scope=Scope.GLOBAL))
    assert decode(raw[:1] + b"\x92\xa6global\x07") == PositionQuery(scope=Scope.GLOBAL)


def test_a_size_is_that_of_the_change() -> None:
    assert messages.size_of(tx(1, op(state="x" * 1000))) > 1000
