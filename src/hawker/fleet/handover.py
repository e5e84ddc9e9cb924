"""What other nodes of the fleet have and this one needs: images, who has them by the catalog, and files of apps, from
those that know the app; piece by piece over the API between nodes. A piece of an image that does not come is asked for
again from where the last one ended.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from hawker.api.caller import Caller
from hawker.api.contract.app_file import HAND_APP_FILE, HandedFileParams, HandedFileQuery
from hawker.api.contract.image import HAND_BLOB, PIECE_BYTES, BlobParams, PieceQuery
from hawker.api.directory import Node
from hawker.catalog.change import Value
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NotFound, OverShare, Unavailable
from hawker.ids import AppName, Digest, NodeId
from hawker.image.blobs import ImageReader
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.neighbours import ImportedElsewhere
from hawker.image.reference import is_digest
from hawker.image.source import Piece, Stored
from hawker.image.transport import TryLater

_MOST_MANIFEST = 4 << 20
_MOST_HOLDERS = 8
_NAMED = "SELECT node, digest, at FROM image_names WHERE reference = ? AND node <> ? ORDER BY at DESC, digest, node"
_HOLDERS = """SELECT node FROM images WHERE digest = ? AND node <> ?
    UNION SELECT node FROM image_names WHERE digest = ? AND node <> ?"""
_LATER = (DeadlineExceeded, Fault, OverShare, Unavailable)


class CatalogLooks(Protocol):
    """Into this node's own copy of the catalog; waits for nobody."""

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]: ...


class FleetNeighbours:
    """Keeps `Neighbours`. `node_of` is what the directory says of a node; `caller` leads to one."""

    def __init__(
        self,
        me: NodeId,
        region: str,
        looks: CatalogLooks,
        node_of: Callable[[NodeId], Node | None],
        caller: Callable[[NodeId, str], Caller],
    ) -> None:
        self._me = me
        self._region = region
        self._looks = looks
        self._node_of = node_of
        self._caller = caller
        self._turn = 0

    def imported(self, reference: str) -> ImportedElsewhere | None:
        rows = self._rows(_NAMED, reference, self._me)
        found = [(NodeId(str(node)), Digest(str(digest)), at) for node, digest, at in rows if is_digest(str(digest))]
        if not found:
            return None
        digest = found[0][1]
        nodes = tuple(node for node, other, _ in found if other == digest)
        return ImportedElsewhere(digest=digest, at=_float(found[0][2]), nodes=nodes)

    def holders(self, digest: Digest) -> Sequence[NodeId]:
        """The living nodes that have the image, those of this region first. They take turns, so that not all ask the
        same one."""
        there = [NodeId(str(node)) for (node,) in self._rows(_HOLDERS, digest, self._me, digest, self._me)]
        living = [node for each in there if (node := self._node_of(each)) is not None and node.alive]
        self._turn += 1
        turn = self._turn % len(living) if living else 0
        near = sorted(living[turn:] + living[:turn], key=lambda node: node.region != self._region)
        return [node.id for node in near[:_MOST_HOLDERS]]

    def source(self, node: NodeId, reader: ImageReader) -> "PeerSource":
        return PeerSource(node, self._caller(node, self._me), reader)

    def _rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        """Nothing while the catalog cannot be read."""
        try:
            return self._looks.rows(query, *params)
        except Unavailable:
            return ()


class PeerSource:
    """Keeps `ImageSource` for what one node has for `reader`."""

    def __init__(self, node: NodeId, caller: Caller, reader: ImageReader) -> None:
        self._node = node
        self._caller = caller
        self._reader = reader

    async def manifest(self, digest: Digest | None) -> Stored:
        """The manifest that the neighbour has for `digest`. Raises `BadImage`, `Unavailable`."""
        assert digest is not None, "a neighbour is asked by digest"
        content = bytearray()
        while True:
            piece = await self._piece(digest, len(content))
            content += piece
            if len(content) > _MOST_MANIFEST:
                raise BadImage(f"node {self._node} has a manifest of over {_MOST_MANIFEST} bytes")
            if len(piece) < PIECE_BYTES:
                return Stored(bytes(content))

    @asynccontextmanager
    async def blob(self, blob: Layer, offset: int) -> AsyncIterator[Piece]:
        yield Piece(offset, self._pieces(blob, offset))

    async def _pieces(self, blob: Layer, offset: int) -> AsyncIterator[bytes]:
        while offset < blob.size:
            piece = await self._piece(blob.digest, offset)
            if not piece:
                raise BadImage(f"node {self._node} has {offset} of the {blob.size} bytes of {blob.digest}")
            yield piece
            offset += len(piece)

    async def _piece(self, digest: Digest, offset: int) -> bytes:
        """Raises `NotFound`, `TryLater` for what may pass, `BadImage` for what will not."""
        query = PieceQuery(org=self._reader, offset=offset)
        try:
            return await self._caller.call(HAND_BLOB, params=BlobParams(digest=digest), query=query)
        except NotFound as error:
            raise NotFound(f"node {self._node} has no blob {digest} for {self._reader or 'nodes'}") from error
        except _LATER as error:
            raise TryLater(f"node {self._node}: {error}") from error
        except HawkerError as error:
            raise BadImage(f"node {self._node} does not hand over {digest}: {error}") from error


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_MOST_ASKED = 32


class FleetFiles:
    """Keeps `worker.apps.FileNeighbours`. `nodes_of_app` are those that know an app, its home first; `node_of` is
    what the directory says of one, `nodes` all that it knows: of a new app it may not know yet who knows it; `caller`
    leads to one."""

    def __init__(
        self,
        me: NodeId,
        nodes_of_app: Callable[[AppName], Sequence[NodeId]],
        node_of: Callable[[NodeId], Node | None],
        nodes: Callable[[], Sequence[Node]],
        caller: Callable[[NodeId, str], Caller],
    ) -> None:
        self._me = me
        self._nodes_of_app = nodes_of_app
        self._node_of = node_of
        self._nodes = nodes
        self._caller = caller

    def holders(self, app: AppName) -> Sequence[NodeId]:
        asked = dict.fromkeys([*self._nodes_of_app(app), *(node.id for node in self._nodes())])
        others = [node for node in asked if node != self._me]
        living = [node for node in others if (known := self._node_of(node)) is not None and known.alive]
        return living[:_MOST_ASKED]

    async def piece(self, node: NodeId, app_id: str, digest: Digest, offset: int, count: int) -> bytes:
        """A piece of an app's file that `node` has, of at most `count` bytes from `offset` on. Raises `NotFound` where
        the node does not have it, and what a call raises."""
        return await self._caller(node, self._me).call(
            HAND_APP_FILE,
            params=HandedFileParams(app_id=app_id, digest=digest),
            query=HandedFileQuery(offset=offset, count=min(count, PIECE_BYTES)),
        )
