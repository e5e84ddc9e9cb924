"""The command line of it; what it does to files is tested in tests/store/test_restore.py."""

from pathlib import Path

import anyio
import pytest

from hawker.cli.main import main
from hawker.store.sqlite import SqliteStore


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
