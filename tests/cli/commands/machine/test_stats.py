import msgspec

from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_use_is_of_the_time_between_two_looks(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    heading, row = hawker("stats", "web").out.splitlines()
    assert heading.split()[:4] == ["NAME", "CPU", "HELD", "MEMORY"]
    assert row.split() == ["web", "50.0%", "-", "2.0M", "256.0M", "3", "0", "1.0K/2.0K", "-"]


def test_use_as_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    (found,) = msgspec.json.decode(hawker("stats", "-o", "json").out)
    assert (found["app"], found["name"], found["cpu_percent"]) == ("shop", "web", 50.0)
    assert found["stats"]["memory_limit_bytes"] == 256 << 20


def test_nothing_that_runs_is_said(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    said = hawker("stats")
    assert (said.status, said.err) == (0, "no machine runs\n")
    assert node.calls.get("machine_stats") is None
    node.add("shop", machine(state=State.STOPPED))
