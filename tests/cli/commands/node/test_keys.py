from pathlib import Path

from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_keys_are_listed_by_number(hawker: Hawker) -> None:
    assert [line.split() for line in hawker("node", "keys", "list").out.splitlines()] == [
        ["KEY", "NAME", "IN", "USE"],
        ["1", "aabbccdd", "yes"],
        ["2", "00112233", "no"],
    ]


def test_a_key_is_added_used_and_removed(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("AQE=\n")
    node.missing_at = ("0bad0001",)
    assert hawker("node", "keys", "add", "--key-file", str(file)).err == "not yet at 0bad0001\n"
    assert node.call("add_cluster_key").body.key == "AQE="
    assert hawker("node", "keys", "use", "2").status == hawker("node", "keys", "remove", "1").status == 0
    assert node.call("use_cluster_key").params.number == "2"
    assert node.call("remove_cluster_key").params.number == "1"


def test_a_new_key_is_made_by_the_node(hawker: Hawker, node: FakeNode) -> None:
    hawker("node", "keys", "add", "-o", "json")
    assert node.call("add_cluster_key").body.key is None
