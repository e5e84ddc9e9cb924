from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_a_node_is_cordoned_by_the_beginning_of_its_id(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("node", "cordon", "0badc").out == "0badcafe accepts no new machines\n"
    assert node.call("cordon_node").params.node_id == "0badcafe"
    assert hawker("node", "uncordon", "0badcafe").out == "0badcafe accepts new machines\n"
    assert node.call("uncordon_node").params.node_id == "0badcafe"
