from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.ids import (
    first_ulid,
    is_machine_id,
    is_snapshot_id,
    is_volume_id,
    new_machine_id,
    new_node_id,
    new_request_id,
    new_snapshot_id,
    new_ulid,
    new_volume_id,
    next_ulid,
)


def test_a_machine_id_is_14_lowercase_hex_characters() -> None:
    machine_id = new_machine_id(ManualClock())
    assert len(machine_id) == 14 and set(machine_id) <= set("0123456789abcdef")
    assert is_machine_id(machine_id)
    assert not any(map(is_machine_id, ("", machine_id.upper() + "A", machine_id[1:], machine_id + "\n")))


def test_the_ids_of_volumes_and_snapshots_have_a_prefix_of_their_own() -> None:
    volume_id, snapshot_id = new_volume_id(ManualClock()), new_snapshot_id(ManualClock())
    assert len(volume_id) == len("vol_") + 16 and is_volume_id(volume_id)
    assert len(snapshot_id) == len("vs_") + 16 and is_snapshot_id(snapshot_id)
    assert not any(map(is_volume_id, ("", snapshot_id, volume_id.upper(), volume_id + "\n", "vol_../../etc/passwd")))
    assert not any(map(is_snapshot_id, ("", volume_id, snapshot_id[:-1], snapshot_id + "/")))


def test_a_node_id_is_8_lowercase_hex_characters() -> None:
    assert len(new_node_id(ManualClock())) == 8


def test_a_ulid_is_what_its_moment_and_its_random_bytes_are_written_as() -> None:
    clock, same = ManualClock(start=1_700_000_000.123), ManualClock(start=1_700_000_000.123)
    value = int(clock.now() * 1000) << 80 | int.from_bytes(same.token_bytes(10), "big")
    written = "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[value >> 5 * place & 31] for place in range(25, -1, -1))
    assert new_ulid(clock) == written


def test_a_request_id_is_a_ulid_with_80_random_bits_and_the_region() -> None:
    clock, others = ManualClock(start=1_700_000_000.123), [ManualClock(seed=seed) for seed in range(400)]
    ulid, region = new_request_id(clock, "ams").decode().split("-")
    assert region == "ams" and len(ulid) == 26 and ulid[:10] == new_ulid(clock)[:10]
    ids = [new_request_id(each, "ams").decode()[10:26] for each in others]
    assert all(set(place) == set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for place in zip(*ids, strict=True))


def test_ulids_sort_by_time() -> None:
    clock = ManualClock()
    first = new_ulid(clock)
    clock.advance(0.001)
    assert len(first) == 26 and first < new_ulid(clock)


@given(st.integers(0, 50), st.integers(0, 3))
def test_the_next_ulid_is_always_greater(seed: int, trailing: int) -> None:
    clock = ManualClock(seed=seed)
    last = new_ulid(clock)[: 26 - trailing] + "Z" * trailing
    for _ in range(5):
        following = next_ulid(clock, last)
        assert following > last and len(following) == 26
        last = following


def test_the_first_ulid_of_a_moment_divides_what_was_named_before_from_what_came_after() -> None:
    clock = ManualClock()
    before = new_ulid(clock)
    clock.advance(0.001)
    moment = first_ulid(clock.now())
    assert len(moment) == 26 and before < moment <= new_ulid(clock)
