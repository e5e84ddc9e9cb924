from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.directory import Node
from hawker.errors import Forbidden, HawkerError, NotFound, OverShare, Unavailable
from hawker.fleet.handover import FleetNeighbours, PeerSource
from hawker.ids import Digest, NodeId
from hawker.image.blobs import EVERYBODY
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.transport import TryLater
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

ME, NEAR, FAR, DOWN = NodeId("0000000a"), NodeId("0000000b"), NodeId("0000000c"), NodeId("0000000d")
DIGEST, NEWER = Digest("sha256:" + "1" * 64), Digest("sha256:" + "2" * 64)
NAME = "docker.io/library/app:v1"
_REGIONS = {ME: "mad", NEAR: "mad", FAR: "fra", DOWN: "mad"}


class Shelf:
    """Keeps `Looks` on a desk's tables; `away` makes it refuse."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.away = False

    def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        if self.away:
            raise Unavailable("the catalog cannot be read now")
        return [tuple(row) for row in self.desk._connection.execute(query, params)]


def node(node_id: NodeId) -> Node | None:
    if node_id not in _REGIONS:
        return None
    return Node(id=node_id, region=_REGIONS[node_id], alive=node_id != DOWN, drivers=(), labels={})


def neighbours(shelf: Shelf) -> FleetNeighbours:
    return FleetNeighbours(ME, "mad", shelf, node, lambda to, behalf: cast(Caller, None))


def name(shelf: Shelf, at_node: NodeId, digest: str, at: float) -> None:
    shelf.desk.run("INSERT INTO image_names VALUES (?, ?, ?, ?)", at_node, NAME, digest, at)


def test_the_newest_meaning_of_a_name_counts_and_says_who_has_it() -> None:
    shelf = Shelf()
    assert neighbours(shelf).imported(NAME) is None
    name(shelf, ME, "sha256:" + "9" * 64, 99.0)  # this node's own row is its index's
    name(shelf, NEAR, DIGEST, 1.0)
    name(shelf, FAR, NEWER, 2.0)
    name(shelf, DOWN, NEWER, 2.0)
    found = neighbours(shelf).imported(NAME)
    assert found is not None and (found.digest, found.at, found.nodes) == (NEWER, 2.0, (FAR, DOWN))
    assert neighbours(shelf).imported("other") is None


def test_a_text_that_is_no_digest_means_nothing() -> None:
    shelf = Shelf()
    name(shelf, NEAR, "../../etc/passwd", 5.0)
    assert neighbours(shelf).imported(NAME) is None


def test_living_nodes_that_have_an_image_are_asked_those_of_the_region_first() -> None:
    shelf = Shelf()
    for each in (ME, NEAR, DOWN, NodeId("0000000f")):
        shelf.desk.run("INSERT INTO images VALUES (?, ?)", each, DIGEST)
    name(shelf, FAR, DIGEST, 1.0)  # of another region no more than its names is known
    found = neighbours(shelf)
    assert list(found.holders(DIGEST)) == list(found.holders(DIGEST)) == [NEAR, FAR]
    assert list(found.holders(NEWER)) == []


def test_holders_take_turns() -> None:
    shelf = Shelf()
    for number in range(3):
        _REGIONS[NodeId(f"000000e{number}")] = "mad"
        shelf.desk.run("INSERT INTO images VALUES (?, ?)", f"000000e{number}", DIGEST)
    found = neighbours(shelf)
    assert len({found.holders(DIGEST)[0] for _ in range(6)}) == 3


def test_a_catalog_that_cannot_be_read_knows_nobody() -> None:
    shelf = Shelf()
    name(shelf, NEAR, DIGEST, 1.0)
    shelf.away = True
    assert neighbours(shelf).imported(NAME) is None and list(neighbours(shelf).holders(DIGEST)) == []


class Hands:
    """A node that has one blob; `errors` are raised by the next calls."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.errors: list[HawkerError] = []
        self.asked: list[int] = []

    async def call(self, route: Any, *, params: Any, query: Any) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        self.asked.append(query.offset)
        return self.blob[query.offset : query.offset + query.count]


def source(hands: Hands) -> PeerSource:
    return PeerSource(NEAR, cast(Caller, hands), EVERYBODY)


async def read(hands: Hands, size: int, offset: int = 0) -> bytes:
    layer = Layer(digest=DIGEST, size=size, media_type="")
    async with source(hands).blob(layer, offset) as piece:
        assert piece.offset == offset
        return b"".join([chunk async for chunk in piece.chunks])


async def test_a_blob_comes_in_pieces_from_where_it_is_wanted() -> None:
    hands = Hands(bytes(PIECE_BYTES) + b"tail")
    assert await read(hands, PIECE_BYTES + 4) == hands.blob and hands.asked == [0, PIECE_BYTES]
    assert await read(hands, PIECE_BYTES + 4, PIECE_BYTES + 1) == b"ail"


async def test_a_manifest_comes_whole_and_has_a_bound() -> None:
    assert (await source(Hands(b"{}")).manifest(DIGEST)).content == b"{}"
    with pytest.raises(BadImage, match="a manifest of over"):
        await source(Hands(bytes(3 * PIECE_BYTES))).manifest(DIGEST)


async def test_a_blob_that_ends_too_early_is_an_error_and_not_an_endless_loop() -> None:
    with pytest.raises(BadImage, match="has 2 of the 5 bytes"):
        await read(Hands(b"ab"), 5)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unavailable("gone"), TryLater),
        (OverShare("busy"), TryLater),
        (NotFound("no blob"), NotFound),
        (Forbidden("not you"), BadImage),
    ],
)
async def test_a_passing_error_is_tried_again_and_a_lasting_one_is_not(
    error: HawkerError, kind: type[Exception]
) -> None:
    hands = Hands(b"abc")
    hands.errors = [error]
    with pytest.raises(kind, match="0000000b"):
        await read(hands, 3)
