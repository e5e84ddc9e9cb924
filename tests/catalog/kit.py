"""Values for the tests of replication: nodes, transactions, deltas."""

from msgspec.structs import replace

from hawker.catalog.change import Delta, Op, ReplicatedTx, Scope, VersionedOp
from hawker.catalog.messages import Push, Rumor, rumor_of
from hawker.ids import NodeId

ME, A, B, C = NodeId("00000000"), NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")


def op(key: str = "1", state: str = "started", origin: NodeId = A) -> Op:
    return Op("machines", (origin, key), ("state",), (state,))


def tx(version: int, *ops: Op, epoch: int = 5, origin: NodeId = A, at: float = 0.0) -> ReplicatedTx:
    return ReplicatedTx(origin, Scope.REGION, epoch, version, at, ops or (op(origin=origin),))


def delta(after: int, upto: int, *, epoch: int = 5, reset: bool = False, last: bool = True, head: int = 0) -> Delta:
    ops = tuple(VersionedOp(version, op(str(version))) for version in range(max(1, after + 1), upto + 1))
    return Delta(A, Scope.REGION, epoch, reset, after, upto, 0, ops, last, head or upto)


def rumor(change: ReplicatedTx, hop: int = 0) -> Rumor:
    return replace(rumor_of(change), hop=hop)


def push(*changes: ReplicatedTx, hop: int = 0) -> Push:
    return Push(scope=changes[0].scope, rumors=tuple(rumor(each, hop) for each in changes))
