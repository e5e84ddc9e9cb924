import msgspec
import pytest

from hawker.catalog.change import Op, ReplicatedTx, Scope, Token
from hawker.ids import NodeId


def test_a_transaction_survives_the_wire_with_every_kind_of_value() -> None:
    row = (None, 1, -(2**63), 0.5, "text", b"\xff\0")
    tx = ReplicatedTx(
        NodeId("aaaaaaaa"), Scope.REGION, 1, 2, 3.0, (Op("t", ("aaaaaaaa", 1), tuple("abcdef"), row), Op("t", ("x",)))
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(tx), type=ReplicatedTx) == tx


@pytest.mark.parametrize("value", [[1], {"a": 1}, msgspec.msgpack.Ext(1, b"x")])
def test_a_value_that_sqlite_cannot_store_is_no_operation(value: object) -> None:
    for raw in (["t", ["a", value]], ["t", ["a"], ["c"], [value]]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=Op)


def test_a_token_reads_as_its_three_parts() -> None:
    assert str(Token(origin=NodeId("aaaaaaaa"), epoch=3, version=14)) == "aaaaaaaa:3:14"
