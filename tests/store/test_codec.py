"""Values come back as what they were, and not as something else."""

import msgspec
import pytest

from hawker.errors import Fault
from hawker.store.codec import decode, encode
from hawker.store.contract import Bucket


class Pear(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def test_a_value_comes_back() -> None:
    assert decode(Bucket("pears", Pear), "a", encode(Pear(name="conference"))) == Pear(name="conference")


def test_plain_types_come_back() -> None:
    assert decode(Bucket("numbers", int), "a", encode(7)) == 7
    assert decode(Bucket("lists", list[str]), "a", encode(["a"])) == ["a"]


def test_bytes_of_another_type_are_refused() -> None:
    with pytest.raises(Fault, match=r"record 'a 1' in bucket pears of the store cannot be read .*restore a backup"):
        decode(Bucket("pears", Pear), "a\0" + "1\0", encode(7))


def test_bytes_that_are_cut_short_are_refused() -> None:
    with pytest.raises(Fault, match="bucket pears"):
        decode(Bucket("pears", Pear), "a", encode(Pear(name="conference"))[:-3])


def test_fields_of_a_newer_program_are_passed_over() -> None:
    assert decode(Bucket("pears", Pear), "a", encode({"name": "abate", "ripe": True})) == Pear(name="abate")
