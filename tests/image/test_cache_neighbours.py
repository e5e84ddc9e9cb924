"""Facts about images that come from other nodes: two caches, one of which has what the other one needs."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from hawker.clock import SystemClock
from hawker.errors import NotFound, Unavailable
from hawker.ids import Digest, NodeId
from hawker.image.blobs import EVERYBODY, ImageReader
from hawker.image.cache import ImageCache
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.neighbours import ImportedElsewhere
from hawker.image.source import Piece, Stored
from hawker.image.transport import TryLater
from tests.fixtures.parts import ImageParts, docker_files, tar
from tests.image.fake_registry import FakeRegistry
from tests.image.images import opened_cache, small

pytestmark = [pytest.mark.anyio, pytest.mark.root]

OTHER, THIRD = NodeId("0000000b"), NodeId("0000000c")
NAME = "docker.io/library/app:v1"
_PIECE = 100_000


class Peer:
    """Keeps `ImageSource` for the cache of another node. `spoil` changes what it hands over; `cuts` are after how many
    pieces it breaks off."""

    def __init__(self, cache: ImageCache) -> None:
        self.cache = cache
        self.reader = EVERYBODY
        self.spoil: Callable[[bytes], bytes] = bytes
        self.cuts: list[int] = []
        self.offsets: list[int] = []
        self.manifests = 0

    async def manifest(self, digest: Digest | None) -> Stored:
        assert digest is not None
        self.manifests += 1
        return Stored(self.spoil(await self.cache.blob_piece(digest, 0, 1 << 20, self.reader)))

    @asynccontextmanager
    async def blob(self, blob: Layer, offset: int) -> AsyncIterator[Piece]:
        self.offsets.append(offset)
        yield Piece(offset, self._pieces(blob, offset))

    async def _pieces(self, blob: Layer, offset: int) -> AsyncIterator[bytes]:
        left = self.cuts.pop(0) if self.cuts else 1 << 30
        while offset < blob.size:
            if not left:
                raise TryLater("the node has gone")
            left -= 1
            data = await self.cache.blob_piece(blob.digest, offset, _PIECE, self.reader)
            yield self.spoil(data)
            offset += len(data)


class Around:
    """Keeps `Neighbours`. `away` cannot be asked."""

    def __init__(self, peers: dict[NodeId, Peer]) -> None:
        self.peers = peers
        self.away: set[NodeId] = set()

    def imported(self, reference: str) -> ImportedElsewhere | None:
        names = [(name, node) for node, peer in self.peers.items() for name in peer.cache.imported_names()]
        found = [(name, node) for name, node in names if name.reference == reference]
        if not found:
            return None
        newest = max((name for name, _ in found), key=lambda name: name.at)
        nodes = tuple(node for name, node in found if name.digest == newest.digest)
        return ImportedElsewhere(digest=newest.digest, at=newest.at, nodes=nodes)

    def holders(self, digest: Digest) -> Sequence[NodeId]:
        return [node for node, peer in self.peers.items() if node not in self.away and peer.cache.find(digest)]

    def source(self, node: NodeId, reader: ImageReader) -> Peer:
        self.peers[node].reader = reader
        return self.peers[node]


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[ImageCache]:
    async with opened_cache(tmp_path / "own", clock=SystemClock()) as opened:
        yield opened


@pytest.fixture
async def around(tmp_path: Path, cache: ImageCache) -> AsyncIterator[Around]:
    async with (
        opened_cache(tmp_path / "b", clock=SystemClock()) as second,
        opened_cache(tmp_path / "c", clock=SystemClock()) as third,
    ):
        around = Around({OTHER: Peer(second), THIRD: Peer(third)})
        cache.meet(around)
        yield around


async def imported(peer: Peer, image: ImageParts, name: str = "app:v1", reader: ImageReader = EVERYBODY) -> Digest:
    async def whole() -> AsyncIterator[bytes]:
        yield tar(*docker_files(image, name).items())

    return (await peer.cache.import_archive(whole(), name, reader)).digest


async def test_an_image_that_was_imported_elsewhere_is_handed_over(cache: ImageCache, around: Around) -> None:
    digest = await imported(around.peers[OTHER], small("far"))
    resolved = await cache.resolve("app:v1")
    assert (resolved.digest, resolved.imported, resolved.registry) == (digest, True, "")
    image = await cache.pull("app:v1")
    assert image.digest == digest and cache.block_path(digest).exists() and cache.names_of(digest) == (NAME,)
    around.away |= {OTHER, THIRD}
    assert (await cache.resolve("app:v1")).digest == digest  # it is here now, and handed on from here
    assert [name.reference for name in cache.imported_names()] == [NAME]


async def test_an_image_is_handed_over_by_its_digest(cache: ImageCache, around: Around) -> None:
    digest = await imported(around.peers[OTHER], small("far"))
    assert (await cache.pull(digest)).digest == digest
    with pytest.raises(NotFound):
        await cache.resolve("sha256:" + "0" * 64)


async def test_a_hand_over_that_breaks_off_goes_on_where_it_was(cache: ImageCache, around: Around) -> None:
    await imported(around.peers[OTHER], small("far", content=Random(1).randbytes(3_000_000)))
    around.peers[OTHER].cuts = [99, 20]
    await cache.pull("app:v1")
    assert any(offset >= 1 << 20 for offset in around.peers[OTHER].offsets)


_SPOILS: dict[str, Callable[[bytes], bytes]] = {
    "other": lambda data: data[:-1] + b"\0",
    "more": lambda data: data + b"more",
    "none": lambda data: b"",
}


@pytest.mark.parametrize("spoil", _SPOILS.values(), ids=_SPOILS.keys())
async def test_a_node_that_hands_over_something_else_is_passed_over(
    cache: ImageCache, around: Around, spoil: Callable[[bytes], bytes]
) -> None:
    digest = await imported(around.peers[OTHER], small("far"))
    assert await imported(around.peers[THIRD], small("far")) == digest
    around.peers[OTHER].spoil = spoil
    assert (await cache.pull("app:v1")).digest == digest
    assert not list((cache.root / "partial").iterdir())


async def test_an_image_only_a_liar_has_is_not_taken(cache: ImageCache, around: Around) -> None:
    await imported(around.peers[OTHER], small("far"))
    around.peers[OTHER].spoil = lambda data: b"x" * len(data)
    with pytest.raises(Unavailable, match=r"imported at 0000000b, which cannot hand it over now: .*digest"):
        await cache.pull("app:v1")
    assert not list((cache.root / "blobs" / "sha256").iterdir()) and cache.list() == []


async def test_an_image_of_a_lost_node_is_named_and_not_asked_of_a_registry(cache: ImageCache, around: Around) -> None:
    digest = await imported(around.peers[OTHER], small("far"))
    assert cache.out_of_reach("app:v1") is None and cache.has_neighbour("app:v1")
    around.away.add(OTHER)
    with pytest.raises(Unavailable, match=r"imported at 0000000b, which cannot hand it over now; import it again"):
        await cache.resolve("app:v1")
    refusal = cache.out_of_reach("app:v1")
    assert refusal is not None and "0000000b" in str(refusal) and not cache.has_neighbour("app:v1")
    assert cache.out_of_reach("other:v1") is None and cache.out_of_reach("hawker/hello") is None
    with pytest.raises(NotFound):
        await cache.resolve(digest)


async def test_the_newest_import_of_a_name_counts(cache: ImageCache, around: Around) -> None:
    old = await imported(Peer(cache), small("old"))
    assert (await cache.resolve("app:v1")).digest == old
    new = await imported(around.peers[OTHER], small("new"))
    assert (await cache.pull("app:v1")).digest == new
    newest = await imported(Peer(cache), small("newest"))
    assert (await cache.resolve("app:v1")).digest == newest
    around.away.add(OTHER)
    assert (await cache.resolve("app:v1")).digest == newest


async def test_a_name_that_was_handed_over_keeps_its_age(cache: ImageCache, around: Around) -> None:
    await imported(around.peers[OTHER], small("first"))
    given_at = around.peers[OTHER].cache.imported_names()[0].at
    await cache.pull("app:v1")
    assert cache.imported_names()[0].at == given_at > 0


async def test_an_image_of_a_registry_comes_from_a_neighbour_once_the_registry_said_what_it_is(
    cache: ImageCache, around: Around, fake: FakeRegistry
) -> None:
    reference = fake.add("app", "v1", small("public"))
    await around.peers[OTHER].cache.pull(reference)
    before = fake.times("/blobs/")
    await cache.pull(reference)
    assert fake.times("/blobs/") == before
    fake.refusals = [404]
    with pytest.raises(BadImage, match="MANIFEST_UNKNOWN"):  # a neighbour's copy opens no registry
        await cache.resolve(f"{fake.host}/app:v1")


async def test_without_a_neighbour_that_keeps_its_word_the_registry_is_asked(
    cache: ImageCache, around: Around, fake: FakeRegistry
) -> None:
    reference = fake.add("app", "v1", small("public"))
    await around.peers[OTHER].cache.pull(reference)
    around.peers[OTHER].spoil = lambda data: b"x" * len(data)
    await cache.pull(reference)
    assert fake.times("/blobs/") >= 2


async def test_a_piece_of_a_blob_is_what_is_there(cache: ImageCache) -> None:
    digest = await imported(Peer(cache), small("own"))
    whole = await cache.blob_piece(digest, 0, 1 << 20)
    assert (
        await cache.blob_piece(digest, 5, 10) == whole[5:15] and await cache.blob_piece(digest, len(whole), 10) == b""
    )
    with pytest.raises(NotFound):
        await cache.blob_piece(Digest("sha256:" + "0" * 64), 0, 10)


async def test_an_import_for_one_organization_is_handed_over_for_no_other(cache: ImageCache, around: Around) -> None:
    acme, other = ImageReader("acme"), ImageReader("other")
    digest = await imported(around.peers[OTHER], small("far"), "127.0.0.1:1/app:v1", acme)
    with pytest.raises(Unavailable, match=r"127.0.0.1:1: |cannot reach"):  # to others the name is the registry's
        await cache.pull("127.0.0.1:1/app:v1", org=other)
    with pytest.raises(NotFound):
        await cache.resolve(digest, org=other)
    assert (await cache.pull("127.0.0.1:1/app:v1", org=acme)).digest == digest
    with pytest.raises(NotFound):
        await cache.resolve(digest, org=other)
    assert (await cache.resolve(digest, org=acme)).digest == digest
