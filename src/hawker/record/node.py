"""Node."""

import msgspec

from hawker.ids import NodeId
from hawker.store.contract import Bucket


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who this worker is. `cordoned`: it takes no new machines; `draining`: its machines are being moved away."""

    id: NodeId
    region: str
    created_at: float
    cordoned: bool = False
    draining: bool = False


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """In a backup only: when it was taken, by which version. A store that has it when a node boots was restored."""

    taken_at: float
    version: str


NODE = Bucket("node", NodeRecord)


COPY = Bucket("copy", CopyRecord)  # the one key "self"
