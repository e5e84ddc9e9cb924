import msgspec

from tests.cli.conftest import Hawker
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, exit_event, machine


def test_events_are_listed_newest_first_with_their_reason(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", events=(exit_event(3), STARTED, LAUNCHED)))
    _, newest, *_ = hawker("machine", "events", "web").out.splitlines()
    assert newest.endswith("it exited with status 3")


def test_events_may_be_fewer_and_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", events=(exit_event(3), STARTED, LAUNCHED)))
    shown = msgspec.json.decode(hawker("machine", "events", "web", "-n", "2", "-o", "json").out)
    assert [event["type"] for event in shown] == ["exit", "start"]
