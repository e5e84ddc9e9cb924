import msgspec
import pytest

from tests.cli.conftest import Hawker


@pytest.mark.parametrize("word", ["show", "status"])
def test_the_node_says_what_it_has_and_what_is_left(hawker: Hawker, word: str) -> None:
    found = [line.split() for line in hawker("node", word).out.splitlines()]
    assert ["driver", "container"] in found
    assert ["machines", "2", "started,", "1", "stopped"] in found
    assert ["shared", "cpus", "24", "3", "21"] in found  # (4 - 1 performance) * 8
    assert ["performance", "cpus", "4", "1", "3"] in found
    assert ["memory,", "MiB", "8192", "1024", "7168"] in found


def test_the_node_as_json(hawker: Hawker) -> None:
    assert msgspec.json.decode(hawker("node", "show", "-o", "json").out)["id"] == "0badcafe"
