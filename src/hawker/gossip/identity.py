"""Who one process of one node is. A value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hawker.gossip.contract import Meta
from hawker.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`boot` names this life of the process, `address` (HOST:PORT) is where others reach it. `fences` are what an
    operator had forgotten before this process began, as far as that was kept."""

    node: NodeId
    cluster: str
    address: str
    boot: int
    meta: Meta
    epoch: int = 0
    fences: Mapping[NodeId, int] = field(default_factory=dict)
