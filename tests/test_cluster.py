import base64
from pathlib import Path

import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.cluster import (
    MAX_KEYS,
    Keyring,
    Peer,
    found_cluster,
    is_key,
    name_of_key,
    new_key,
    read_cluster,
    write_cluster,
)
from hawker.errors import CannotStart
from hawker.ids import NodeId


def test_a_cluster_is_read_as_it_was_written_and_is_its_owners_only(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    made = found_cluster(ManualClock(), advertise="10.0.0.1", peer_port=4281)
    known = msgspec.structs.replace(made, peers=(Peer(node=NodeId("00c0ffee"), address="10.0.0.2:4281"),))
    write_cluster(file, known)
    assert read_cluster(file) == known
    assert file.stat().st_mode & 0o777 == 0o600
    write_cluster(file, made)
    assert read_cluster(file) == made
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.json"]


def test_a_draft_that_a_crash_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "cluster.new").write_text("half of")
    made = found_cluster(ManualClock(), advertise="10.0.0.1", peer_port=4281)
    write_cluster(tmp_path / "cluster.json", made)
    assert read_cluster(tmp_path / "cluster.json") == made


def test_no_file_is_no_cluster(tmp_path: Path) -> None:
    assert read_cluster(tmp_path / "cluster.json") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"id": "ab"}',
        '{"id": "ab", "keyring": {"keys": []}, "advertise": "h", "peer_port": 1}',
        '{"id": "ab", "keyring": {"keys": ["c2hvcnQ="]}, "advertise": "h", "peer_port": 1}',
        "\ud800",
    ],
)
def test_a_damaged_file_says_what_to_do(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(
        CannotStart, match=r"cannot read .*cluster.json: .*; restore it .* or remove it and run `hawker"
    ):
        read_cluster(file)


def test_what_cannot_be_read_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(CannotStart, match="cannot read"):
        read_cluster(tmp_path / "cluster.json")


def test_unknown_fields_are_those_of_a_newer_hawker(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    made = found_cluster(ManualClock(), advertise="h", peer_port=1)
    document = msgspec.json.decode(msgspec.json.encode(made)) | {"colour": "blue"}
    file.write_bytes(msgspec.json.encode(document))
    assert read_cluster(file) == made


def test_a_key_is_rotated_by_adding_using_and_removing() -> None:
    clock = ManualClock()
    first, second = new_key(clock), new_key(clock)
    ring = Keyring(keys=(first,))
    two = ring.added(second)
    assert two.keys == (first, second) and two.primary == 0 and two.version == 2
    used = two.using(name_of_key(second))
    assert used.primary == 1 and used.version == 3
    left = used.without(name_of_key(first))
    assert left.keys == (second,) and left.primary == 0 and left.version == 4
    assert left.secrets == (base64.b64decode(second),)


def test_the_key_in_use_stays() -> None:
    clock = ManualClock()
    ring = Keyring(keys=(new_key(clock), new_key(clock)))
    with pytest.raises(ValueError, match="is in use: use another one first"):
        ring.without(ring.names[0])
    with pytest.raises(ValueError, match=f"there is no key 'nokey'; there are {ring.names[0]}, {ring.names[1]}"):
        ring.using("nokey")


def test_a_keyring_has_few_keys_each_once() -> None:
    clock = ManualClock()
    keys = tuple(new_key(clock) for _ in range(MAX_KEYS))
    with pytest.raises(ValueError, match="1 to 4 keys, not 5"):
        Keyring(keys=keys).added(new_key(clock))
    with pytest.raises(ValueError, match="each key once"):
        Keyring(keys=keys[:2]).added(keys[0])
    with pytest.raises(ValueError, match="32 bytes"):
        Keyring(keys=(keys[0],)).added("nonsense")
    with pytest.raises(ValueError, match="no key number 1"):
        Keyring(keys=keys[:1], primary=1)


def test_what_is_no_key_is_told() -> None:
    assert is_key(new_key(ManualClock()))
    assert not is_key("") and not is_key("c2hvcnQ=") and not is_key("ä") and not is_key("!!!!")
