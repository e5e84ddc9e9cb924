from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.app_file import HAND_APP_FILE
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.directory import Node
from hawker.fleet.handover import FleetFiles
from hawker.ids import AppName, Digest, NodeId

pytestmark = pytest.mark.anyio

ME, HOME, OTHER, DOWN = (NodeId(f"0000000{letter}") for letter in "abcd")
DIGEST = Digest("sha256:" + "1" * 64)


def node(node_id: NodeId) -> Node:
    return Node(id=node_id, region="mad", alive=node_id != DOWN, drivers=(), labels={})


class Peer:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def call(self, route: Any, *, params: Any, query: Any) -> bytes:
        self.calls.append((route, params.app_id, params.digest, query.offset, query.count))
        return b"piece"


def files(peer: Peer | None = None, *knows: NodeId) -> FleetFiles:
    everybody = [node(each) for each in (ME, HOME, OTHER, DOWN)]
    return FleetFiles(ME, lambda app: knows, node, lambda: everybody, lambda to, behalf: cast(Caller, peer))


def test_those_that_know_the_app_are_asked_first_and_none_that_is_down() -> None:
    assert list(files(None, OTHER, DOWN, ME).holders(AppName("shop"))) == [OTHER, HOME]
    assert list(files(None).holders(AppName("new"))) == [HOME, OTHER]


async def test_a_piece_is_asked_for_by_the_id_of_the_app() -> None:
    peer = Peer()
    assert await files(peer).piece(HOME, "app-id", DIGEST, 7, 1 << 30) == b"piece"
    assert peer.calls == [(HAND_APP_FILE, "app-id", DIGEST, 7, PIECE_BYTES)]
