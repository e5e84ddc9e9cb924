import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.errors import BadRequest, Conflict
from hawker.gossip.keyring import GossipKeyring, StoredKeyring, checked, loaded, new_keyring, rank_of, stored

KEYS = [bytes([number]) * 32 for number in range(5)]


def test_a_key_is_replaced_in_three_steps() -> None:
    first = new_keyring(ManualClock())
    second = first.added(KEYS[0])
    assert second.primary == 1 and sorted(second.keys) == [1, 2]
    third = second.using(2)
    fourth = third.removed(1)
    assert fourth == GossipKeyring(keys={2: KEYS[0]}, primary=2, version=4)
    assert [rank_of(ring) for ring in (first, second, third, fourth)] == sorted(
        rank_of(ring) for ring in (first, second, third, fourth)
    )


def test_four_keys_at_most() -> None:
    ring = new_keyring(ManualClock())
    for key in KEYS[:3]:
        ring = ring.added(key)
    with pytest.raises(Conflict, match="remove one"):
        ring.added(KEYS[3])


def test_the_primary_stays() -> None:
    with pytest.raises(Conflict, match="use another one first"):
        new_keyring(ManualClock()).removed(1)


def test_keys_that_are_not_there() -> None:
    ring = new_keyring(ManualClock())
    for change in (ring.using, ring.removed):
        with pytest.raises(BadRequest, match="no key 9"):
            change(9)


def test_a_key_has_32_bytes() -> None:
    with pytest.raises(BadRequest, match="32 bytes"):
        new_keyring(ManualClock()).added(b"short")


def test_numbers_go_round() -> None:
    ring = GossipKeyring(keys={255: KEYS[0], 0: KEYS[1]}, primary=255)
    assert sorted(ring.added(KEYS[2]).keys) == [0, 1, 255]


def test_two_changes_at_once_have_an_order() -> None:
    ring = new_keyring(ManualClock())
    one, other = ring.added(KEYS[0]), ring.added(KEYS[1])
    assert rank_of(one) != rank_of(other) and min(rank_of(one), rank_of(other)) > rank_of(ring)


@given(
    st.dictionaries(st.integers(0, 255), st.binary(min_size=32, max_size=32), min_size=1, max_size=4),
    st.integers(1, 2**30),
)
def test_a_file_keeps_it(keys: dict[int, bytes], version: int) -> None:
    ring = GossipKeyring(keys=keys, primary=min(keys), version=version)
    text = msgspec.json.encode(stored(ring))
    assert loaded(msgspec.json.decode(text, type=StoredKeyring)) == ring


@pytest.mark.parametrize(
    "file",
    [
        StoredKeyring(version=1, primary=1, keys={}),
        StoredKeyring(version=1, primary=2, keys={"1": "A" * 43 + "="}),
        StoredKeyring(version=1, primary=1, keys={"1": "short"}),
        StoredKeyring(version=1, primary=1, keys={"1": "AAAA"}),
        StoredKeyring(version=1, primary=1, keys={"one": "A" * 43 + "="}),
        StoredKeyring(version=1, primary=300, keys={"300": "A" * 43 + "="}),
    ],
)
def test_invalid_keyring_is_refused(file: StoredKeyring) -> None:
    with pytest.raises(BadRequest):
        loaded(file)


def test_keyring_does_not_print_its_keys() -> None:
    ring = checked(GossipKeyring(keys={1: b"k" * 32}, primary=1))
    assert "kkk" not in repr(ring) and "keys=[1]" in repr(ring)
