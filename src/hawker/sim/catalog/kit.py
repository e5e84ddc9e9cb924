"""What a simulated node's replication is made of: each part by its class. A planted bug is a kit with other parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from hawker.catalog.anti_entropy import VersionVector
from hawker.catalog.change import Position, Scope
from hawker.catalog.engine import ReplicationEngine
from hawker.catalog.inbound import Inbound
from hawker.catalog.memory_storage import MemoryStorage
from hawker.catalog.replication import Replication
from hawker.clock import Clock
from hawker.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogKit:
    """`storage` is what keeps a catalog in memory; a catalog in a file has the real one."""

    storage: type[MemoryStorage] = MemoryStorage
    replication: type[Replication] = Replication
    intake: type[Inbound] = Inbound
    vector: type[VersionVector] = VersionVector

    def engine(
        self,
        node: NodeId,
        region: str,
        positions: Mapping[Scope, Mapping[NodeId, Position]],
        clock: Clock,
        *,
        proven: bool,
        grace_s: float,
        part_bytes: int,
    ) -> ReplicationEngine:
        """The engine of these parts, with what `ReplicationEngine` takes."""
        intake = partial(self.intake, vector=self.vector)
        replication = partial(self.replication, intake=intake)
        return ReplicationEngine(
            node,
            region,
            positions,
            clock,
            proven=proven,
            grace_s=grace_s,
            part_bytes=part_bytes,
            replication=replication,
        )


SOUND_CATALOG = CatalogKit()
