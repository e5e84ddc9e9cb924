import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web"))


def test_memory_is_shown(hawker: Hawker) -> None:
    _, row = hawker("machine", "memory", "show", "web").out.splitlines()
    assert row.split() == ["256", "MiB", "200", "MiB"]
    shown = msgspec.json.decode(hawker("machine", "memory", "show", "web", "-o", "json").out)
    assert shown == {"limit_mb": 256, "available_mb": 200}


def test_a_limit_is_written_as_everywhere(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "memory", "set", "web", "1g").status == ExitStatus.OK
    assert node.call("set_memory").body.limit_mb == 1024


def test_reclaimed_memory_is_told(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "memory", "reclaim", "web", "100m")
    assert said.out.splitlines()[-1] == "40 MiB"
    assert node.call("reclaim_memory").body.amount_mb == 100


def test_a_size_that_is_none_is_wrong_usage(hawker: Hawker) -> None:
    assert hawker("machine", "memory", "set", "web", "much").status == ExitStatus.USAGE
