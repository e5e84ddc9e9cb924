"""What `hawker node mesh` does and refuses; how a node takes its new key is in tests/fleet/test_mesh.py."""

import json
from pathlib import Path

import pytest

from hawker.cli.exits import ExitStatus
from hawker.cli.main import main
from hawker.host.mesh.wireguard import own_key
from hawker.place import Place


def test_rekey_replaces_the_key_and_says_the_public_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    place.mesh.mkdir()
    before = own_key(place.mesh_key)
    assert main(["node", "mesh", "rekey", "--data-dir", str(tmp_path), "-o", "json"]) == ExitStatus.OK
    after = own_key(place.mesh_key)
    assert json.loads(capsys.readouterr().out)["key"] == after.public != before.public


def test_rekey_of_a_node_without_tunnels_is_refused_and_makes_no_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "mesh", "rekey", "--data-dir", str(tmp_path)]) != ExitStatus.OK
    assert "has no tunnels" in capsys.readouterr().err and not list(tmp_path.iterdir())
