import hashlib
import stat
from pathlib import Path

from hawker.api.contract.node import BackupPart
from hawker.errors import Unavailable
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode

COPY = b"SQLite" * 1000


def sent(data: bytes, said: bytes = b"") -> tuple[BackupPart, ...]:
    """`data` in pieces, and at the end the digest of `said`."""
    pieces = [BackupPart(data=data[at : at + 1000]) for at in range(0, len(data), 1000)]
    return (*pieces, BackupPart(size_bytes=len(data), sha256=hashlib.sha256(said or data).hexdigest()))


def test_a_backup_is_the_nodes_bytes_for_its_owner_alone(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.backup = sent(COPY)
    file = tmp_path / "node.db"
    said = hawker("node", "backup", str(file))
    assert (said.status, said.out) == (0, f"{file}: 5.9 KiB\n")
    assert file.read_bytes() == COPY
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_there_is_kept_unless_told(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.backup = sent(COPY)
    file = tmp_path / "node.db"
    file.write_text("precious")
    said = hawker("node", "backup", str(file))
    assert said.status == 1 and "--force" in said.err and not node.calls
    assert file.read_text() == "precious"
    assert hawker("node", "backup", "--force", str(file)).status == 0
    assert file.read_bytes() == COPY


def test_a_file_that_differs_from_the_sent_one_is_not_kept(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.backup = sent(COPY, b"something else")
    assert hawker("node", "backup", str(tmp_path / "node.db")).status == 1
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_is_not_kept(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.backup = sent(COPY)[:-1]
    assert hawker("node", "backup", str(tmp_path / "node.db")).status == 1
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_cannot_is_an_error(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.failures["back_up"] = Unavailable("the store cannot be used now: disk full")
    said = hawker("node", "backup", str(tmp_path / "node.db"))
    assert said.status == 5 and "disk full" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(hawker: Hawker, node: FakeNode, tmp_path: Path) -> None:
    node.backup = sent(COPY)
    said = hawker("node", "backup", str(tmp_path / "no/such/node.db"))
    assert said.status == 1 and "no/such/node.db" in said.err
