"""What `hawker node remove` asks and refuses; what it does is in tests/up/test_removal.py."""

from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.main import main

ID = "0badcafe"


def place(folder: Path) -> Path:
    """A data directory without a daemon."""
    (folder / "node").write_text(f"{ID}\n")
    (folder / "machines").mkdir()
    return folder


def remove(*words: str) -> int:
    return main(["node", "remove", *words])


def test_the_end_of_machines_has_to_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(place(tmp_path))
    (tmp_path / "machines" / "3d8f0000000001").mkdir()
    for words in ((), ("--drain", "--destroy")):
        assert remove("--data-dir", folder, "--yes", *words) == ExitStatus.USAGE
    assert "--drain or --destroy" in capsys.readouterr().err and (tmp_path / "node").exists()


def test_nothing_is_removed_where_nobody_can_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert remove("--data-dir", str(place(tmp_path)), "--destroy") == ExitStatus.USAGE
    said = capsys.readouterr().err
    assert f"node {ID}" in said and "--yes" in said and (tmp_path / "node").exists()


def test_a_directory_without_a_node_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("mine")
    assert remove("--data-dir", str(tmp_path), "--destroy", "--yes") == ExitStatus.USAGE
    assert "there is no node in" in capsys.readouterr().err and (tmp_path / "precious").read_text() == "mine"
