"""Files that are sent before an order, with a node that is played."""

from pathlib import Path

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode

BIG = b"big" * 600_000


def test_a_file_is_uploaded_before_the_order_that_names_it(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    said = hawker("machine", "run", "-d", "-f", f"/etc/big={tmp_path}/big", "web:3")
    assert said.status == ExitStatus.OK, said
    sent, ordered = node.call("put_app_file"), node.call("create_machine").body.config.files[0]
    assert node.uploaded == BIG and sent.query.size == len(BIG)
    assert (ordered.guest_path, ordered.digest, ordered.size) == ("/etc/big", sent.params.digest, len(BIG))
    assert ordered.raw_value is None


def test_a_file_that_the_node_has_is_not_sent_again(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    node.has_files = True
    said = hawker("machine", "run", "-d", "-f", f"/etc/big={tmp_path}/big", "web:3")
    assert said.status == ExitStatus.OK and "put_app_file" not in node.calls, said


def test_a_small_file_goes_with_the_config(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"small")
    hawker("machine", "run", "-d", "-f", f"/etc/small={tmp_path}/small", "web:3")
    assert "get_app_file" not in node.calls
    assert node.call("create_machine").body.config.files[0].raw_value is not None
