"""What `hawker node remove` asks and refuses; what it does is in tests/up/test_removal.py."""

from pathlib import Path

import pytest

from hawker.api.contract.cluster import NodeMachine
from hawker.cli.exits import ExitStatus
from hawker.cli.main import main
from hawker.up.removal import Removal
from tests.cli.conftest import Hawker, hawker, node, url
from tests.cli.fake_node import FakeNode, machine
from tests.cli.fake_volumes import volume

__all__ = ["hawker", "node", "url"]

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


FIRST, FREE = "3d8f0000000001", "vol_0000000000000003"


def test_a_volume_that_a_drain_leaves_keeps_the_node_from_being_removed(
    tmp_path: Path, node: FakeNode, hawker: Hawker, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []

    async def run(self: Removal) -> None:
        removed.append(self.node)

    monkeypatch.setattr(Removal, "run", run)
    monkeypatch.setenv("HAWKER_DATA_DIR", str(tmp_path))
    words = ("node", "remove", "--drain", "--yes", "--data-dir", str(place(tmp_path)))
    node.add("shop", machine(FIRST))
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    node.keep("shop", volume(FREE), volume("vol_0000000000000004", zone="4e5f6071"))
    said = hawker(*words)
    assert said.status == ExitStatus.FAILED and removed == []
    assert f"nothing was removed: {FREE}. " in said.err and "`hawker volumes move VOLUME --to-node NODE`" in said.err
    node.keep("shop", volume(FREE, state="pending_destroy"))
    assert hawker(*words).status == ExitStatus.OK and removed == [ID]
