"""Values come back as what they were, and not as something else."""

import msgspec
import pytest

from hawker.store.codec import decode, encode
from hawker.store.contract import Bucket


class Pear(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def test_a_value_comes_back() -> None:
    assert decode(Bucket("pears", Pear), encode(Pear(name="conference"))) == Pear(name="conference")


def test_plain_types_come_back() -> None:
    assert decode(Bucket("numbers", int), encode(7)) == 7
    assert decode(Bucket("lists", list[str]), encode(["a"])) == ["a"]


def test_bytes_of_another_type_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(Bucket("pears", Pear), encode(7))
