from importlib.metadata import version

import msgspec
import pytest

from hawker.cli.main import main
from tests.cli.conftest import Hawker


def test_both_versions_are_told(hawker: Hawker) -> None:
    shown = msgspec.json.decode(hawker("version", "-o", "json").out)
    assert shown == {"client": version("hawker"), "node": "9.9.9"}


def test_without_a_node_there_is_one_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1", "version"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["node", "no", "answer"]
