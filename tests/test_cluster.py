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
    peer_hosts,
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


def test_the_directory_of_another_user_is_named_and_nothing_in_it_is_to_be_removed(tmp_path: Path) -> None:
    """Root reads everything: the file is one that the kernel lets nobody read so."""
    file = tmp_path / "cluster.json"
    write_cluster(file, found_cluster(ManualClock(), advertise="10.0.0.1", peer_port=4281))

    class Locked(type(file)):  # type: ignore[misc]
        def read_bytes(self) -> bytes:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(CannotStart, match="is another user's: be that user, or choose another") as refused:
        read_cluster(Locked(file))
    assert "remove" not in str(refused.value)


def test_no_file_is_no_cluster(tmp_path: Path) -> None:
    assert read_cluster(tmp_path / "cluster.json") is None
    (tmp_path / "file").touch()
    assert read_cluster(tmp_path / "file" / "cluster.json") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"id": "ab"}',
        '{"id": "ab", "keyring": {"keys": {}, "primary": 1}, "advertise": "h", "peer_port": 1}',
        '{"id": "ab", "keyring": {"keys": {"1": "c2hvcnQ="}, "primary": 1}, "advertise": "h", "peer_port": 1}',
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


def test_a_file_that_cannot_be_read_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(CannotStart, match="cannot read"):
        read_cluster(tmp_path / "cluster.json")


def test_unknown_fields_are_those_of_a_newer_hawker(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    made = found_cluster(ManualClock(), advertise="h", peer_port=1)
    document = msgspec.json.decode(msgspec.json.encode(made)) | {"colour": "blue"}
    file.write_bytes(msgspec.json.encode(document))
    assert read_cluster(file) == made


def test_a_keyring_has_few_whole_keys_and_one_that_is_used() -> None:
    key = base64.b64encode(bytes(32)).decode()
    assert Keyring(keys={"3": key}, primary=3).secrets == {3: bytes(32)}
    with pytest.raises(ValueError, match="1 to 4 keys, not 5"):
        Keyring(keys={str(number): key for number in range(MAX_KEYS + 1)}, primary=1)
    with pytest.raises(ValueError, match="32 bytes"):
        Keyring(keys={"1": key, "2": "nonsense"}, primary=1)
    with pytest.raises(ValueError, match="no key number 2"):
        Keyring(keys={"1": key}, primary=2)
    for number in ("256", "-1", "one", ""):
        with pytest.raises(ValueError, match="numbers below 256"):
            Keyring(keys={number: key, "1": key}, primary=1)


def test_a_text_that_is_no_key_is_told() -> None:
    assert is_key(base64.b64encode(bytes(32)).decode())
    assert not is_key("") and not is_key("c2hvcnQ=") and not is_key("ä") and not is_key("!!!!")


def test_a_keys_name_tells_it_from_others() -> None:
    assert name_of_key(bytes(32)) == name_of_key(bytes(32)) != name_of_key(bytes(31) + b"1")


def test_hosts_of_peers_are_without_port_and_brackets() -> None:
    peers = [Peer(node=NodeId("0badcafe"), address=each) for each in ("10.0.0.1:4281", "[fd00::1]:4281")]
    assert peer_hosts(peers) == {"10.0.0.1", "fd00::1"}
