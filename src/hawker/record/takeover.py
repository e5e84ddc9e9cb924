"""What a worker keeps of takeovers: those that its spares made, and those that its own machines gave way to."""

import msgspec

from hawker.ids import MachineId, NodeId
from hawker.store.contract import Bucket


class TakeoverRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Written in the transaction that starts the spare. `seen` is the machine's `updated_at` when its host, `owner`,
    was lost; `at` when the spare was started. Unix seconds."""

    machine: MachineId
    spare: MachineId
    owner: NodeId
    seen: float
    at: float


class FencedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a machine of this node was ended because a spare had taken over what it was at `seen`. One that is started
    by hand later goes on."""

    spare: MachineId
    seen: float
    at: float


TAKEOVERS = Bucket("takeovers", TakeoverRecord)  # the lost machine's id/the spare's
FENCED = Bucket("fenced", FencedRecord)  # machine id
