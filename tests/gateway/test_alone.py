import pytest

from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.gateway.alone import NoPeers, OneNode
from hawker.ids import AppName, NodeId

ME, OTHER = NodeId("0000000a"), NodeId("0000000b")


def test_the_one_node_is_asked_for_everything() -> None:
    one = OneNode(lambda: Node(id=ME, region="mad", labels={}))
    assert (one.region, [node.id for node in one.nodes()]) == ("mad", [ME])
    assert one.node(OTHER) is None and one.node(ME) is not None
    assert {one.owner_of_machine("m"), one.owner_of_volume("v"), one.home_of_app(AppName("a"))} == {ME}
    assert one.nodes_of_app(AppName("a")) == (ME,)


def test_nobody_else_can_be_called() -> None:
    peers = NoPeers(ME, Handlers(), ManualClock())
    peers.caller(ME, behalf="ann")
    with pytest.raises(Unavailable, match="knows no node 0000000b"):
        peers.caller(OTHER, behalf="ann")
