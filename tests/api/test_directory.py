import pytest

from hawker.api.directory import Node
from hawker.ids import NodeId


@pytest.mark.parametrize(
    ("alive", "unheard", "down"), [(True, False, False), (False, True, False), (False, False, True)]
)
def test_a_node_is_down_when_it_was_heard_of_and_does_not_live(alive: bool, unheard: bool, down: bool) -> None:
    node = Node(id=NodeId("0000000a"), region="mad", alive=alive, unheard=unheard, labels={})
    assert node.is_down is down
