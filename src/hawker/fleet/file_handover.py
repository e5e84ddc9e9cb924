"""Files of apps from other nodes of the fleet: those that know the app are asked, piece by piece, over the API between
nodes.
"""

from collections.abc import Callable, Sequence

from hawker.api.caller import Caller
from hawker.api.contract.app_file import HAND_APP_FILE, HandedFileParams, HandedFileQuery
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.directory import Node
from hawker.ids import AppName, Digest, NodeId

_MOST_ASKED = 32


class FleetFiles:
    """Keeps `worker.app_files.FileNeighbours`. `nodes_of_app` are those that know an app, its home first; `node_of` is
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
        """Raises `NotFound` where the node does not have it, and what a call raises."""
        return await self._caller(node, self._me).call(
            HAND_APP_FILE,
            params=HandedFileParams(app_id=app_id, digest=digest),
            query=HandedFileQuery(offset=offset, count=min(count, PIECE_BYTES)),
        )
