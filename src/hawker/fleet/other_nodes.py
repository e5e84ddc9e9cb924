"""What moves and deploys take of their fleet."""

from collections.abc import Awaitable, Callable, Sequence

from hawker.api.caller import Caller
from hawker.api.directory import Directory, Node
from hawker.errors import Fault, Unavailable
from hawker.fleet.app_bundle import AppBundler
from hawker.ids import AppName, MachineId, NodeId, VolumeId
from hawker.record.app import AppRecord
from hawker.store.contract import Reader, Tx
from hawker.vault import Vault

SEALED_FOR = "moved unit"
_BEHALF = "move"


class FleetOtherNodes:
    """Keeps `worker.lifecycle.deps.OtherNodes`. `vaults` are of the cluster's keys, the one to seal with first; `way`
    leads to a node, `generation_of`, `lost_since` and `is_forgotten` are what catalog and gossip say."""

    def __init__(
        self,
        me: NodeId,
        directory: Directory,
        way: Callable[[NodeId, str], Caller],
        bundler: AppBundler,
        vaults: Callable[[], Sequence[Vault]],
        generation_of: Callable[[MachineId], int],
        lost_since: Callable[[NodeId], Awaitable[float | None]],
        is_forgotten: Callable[[NodeId], bool],
    ) -> None:
        self._me = me
        self._directory = directory
        self._way = way
        self._bundler = bundler
        self._vaults = vaults
        self._generation_of = generation_of
        self._lost_since = lost_since
        self._is_forgotten = is_forgotten

    @property
    def me(self) -> NodeId:
        return self._me

    def caller(self, node: NodeId) -> Caller:
        return self._way(node, _BEHALF)

    def nodes(self) -> Sequence[Node]:
        return self._directory.nodes()

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return self._directory.nodes_of_app(app)

    def seen_at(self, machine: MachineId) -> NodeId | None:
        return self._directory.owner_of_machine(machine)

    def volume_seen_at(self, volume: VolumeId) -> NodeId | None:
        return self._directory.owner_of_volume(volume)

    def seen_generation(self, machine: MachineId) -> int:
        return self._generation_of(machine)

    async def lost_since(self, node: NodeId) -> float | None:
        return await self._lost_since(node)

    def is_forgotten(self, node: NodeId) -> bool:
        return self._is_forgotten(node)

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        return self._bundler.pack(reader, app)

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        self._bundler.unpack(tx, app, packed)

    def seal(self, data: bytes) -> bytes:
        return self._vaults()[0].seal(SEALED_FOR, data)

    def open(self, sealed: bytes) -> bytes:
        for vault in self._vaults():
            try:
                return vault.open(SEALED_FOR, sealed)
            except Fault:
                continue
        raise Unavailable("what is to move was sealed with a key that this node does not know yet")
