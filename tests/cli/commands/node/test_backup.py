import hashlib
import stat
from pathlib import Path

import anyio
import pytest

from hawker.api.contract.node import BackupPart
from hawker.cli.main import main
from hawker.errors import Unavailable
from hawker.store.sqlite import SqliteStore
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


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    async def make() -> None:
        store = SqliteStore(tmp_path / "source.db")
        await store.backup(tmp_path / "backup.db")
        await store.close()

    anyio.run(make)
    return tmp_path / "backup.db"


def test_a_restored_node_is_told_how_to_go_on(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert main(["node", "restore", str(backup), "--data-dir", str(data)]) == 0
    said = capsys.readouterr()
    assert said.out == f"restored {data}/hawker.db; start the node with `hawker up`\n" and said.err == ""
    assert main(["node", "restore", str(backup), "--data-dir", str(data)]) == 0
    assert f"the replaced store is {data}/hawker.db.replaced-" in capsys.readouterr().err


def test_the_directory_is_the_variables_unless_told(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAWKER_DATA_DIR", str(tmp_path))
    assert main(["node", "restore", str(backup)]) == 0
    assert (tmp_path / "hawker.db").exists()


def test_a_directory_that_is_not_there(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "restore", str(backup), "--data-dir", str(tmp_path / "none")]) == 2
    assert "--data-dir" in capsys.readouterr().err


def test_a_file_that_is_no_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("milk, eggs\n" * 1000)
    assert main(["node", "restore", str(tmp_path / "notes"), "--data-dir", str(tmp_path)]) == 2
    assert f"{tmp_path}/notes" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes"]
