"""What the storage's thread is asked to do, one job at a time, and how it does it. A job is decided in the event loop
and its result is taken in there; only `perform` touches the storage.
"""

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope
from hawker.catalog.contract import ApplyOutcome, Storage
from hawker.catalog.messages import PullAnswer, Want, size_of
from hawker.ids import NodeId
from hawker.value_object import ValueObject


class Apply(ValueObject, frozen=True):
    batch: Sequence[ReplicatedTx | Delta]


class Serve(ValueObject, frozen=True):
    """An answer to `to`; `ask` is the number of its question when that came over a stream."""

    to: NodeId
    scope: Scope
    wants: tuple[Want, ...]
    max_bytes: int
    """About how much the answer may have; what is left out is asked for again."""
    ask: int | None = None


class Renew(ValueObject, frozen=True):
    me: NodeId
    scope: Scope
    epoch: int
    """The new one; greater than all of this node before."""


class RaiseFence(ValueObject, frozen=True):
    origin: NodeId
    epoch: int
    """The epoch up to which what `origin` published is ignored from now on."""


class Collect(ValueObject, frozen=True):
    before: float
    """Unix seconds: what was deleted before that is dropped for good."""


Job: TypeAlias = Apply | Serve | Renew | RaiseFence | Collect


class JobResult(ValueObject, frozen=True):
    """The result of a job; `positions` are where streams are now."""

    positions: dict[tuple[NodeId, Scope], Position] = msgspec.field(default_factory=dict)
    outcome: ApplyOutcome | None = None
    parts: PullAnswer | None = None


def perform(storage: Storage, job: Job) -> JobResult:
    """Does a job, in the storage's thread."""
    match job:
        case Apply():
            outcome = storage.apply(job.batch)
            return JobResult(positions=dict(outcome.positions), outcome=outcome)
        case Serve():
            return JobResult(parts=_serve(storage, job))
        case Renew():
            return JobResult(positions={(job.me, job.scope): storage.renew(job.scope, job.epoch)})
        case RaiseFence():
            storage.fence(job.origin, job.epoch)
            return JobResult(positions={(job.origin, scope): _position(storage, job.origin, scope) for scope in Scope})
        case Collect():
            storage.collect(job.before)
            return JobResult()


def _position(storage: Storage, origin: NodeId, scope: Scope) -> Position:
    return storage.positions(scope).get(origin, Position())


def _serve(storage: Storage, job: Serve) -> PullAnswer:
    """As much of what is wanted as fits, at least something of the first."""
    txs: list[ReplicatedTx] = []
    deltas: list[Delta] = []
    left, more = job.max_bytes, False
    for want in job.wants:
        if left <= 0:
            more = True
            break
        found: Sequence[ReplicatedTx] = ()
        if want.after >= 0 and want.since < 0:
            found = storage.replay(want.origin, job.scope, want.after, left)
        if found:
            txs.extend(found)
            left -= sum(map(size_of, found))
        else:
            delta = storage.delta(want.origin, job.scope, want.after, left, since=want.since)
            deltas.append(delta)
            left -= size_of(delta)
            more = more or not delta.last
    return PullAnswer(txs=tuple(txs), deltas=tuple(deltas), more=more)


SLICE_S = 0.025
"""Seconds that applying one slice should take at most, so that other jobs get their turn."""
FEWEST, FIRST, MOST = 16, 256, 8192
"""Operations in one slice: the lower bound, the first guess, the upper bound."""


class ApplySlices:
    """Cuts what waits to be applied into slices, and learns their size from the time that slices took. A transaction is
    never cut; a delta is cut between versions, so its reader is on the way as with any delta in parts."""

    def __init__(self, ops: int = FIRST) -> None:
        self.ops = ops

    def took(self, ops: int, seconds: float) -> None:
        if seconds > SLICE_S:
            self.ops = max(FEWEST, self.ops // 2)
        elif seconds < SLICE_S / 4 and ops >= self.ops:
            self.ops = min(MOST, self.ops * 2)

    def take(self, ready: deque[ReplicatedTx | Delta]) -> tuple[list[ReplicatedTx | Delta], list[NodeId]]:
        """The next slice: at least one item, or one version of a delta. And the origins of the items that end in it."""
        batch: list[ReplicatedTx | Delta] = []
        ended: list[NodeId] = []
        left = self.ops
        while ready and left > 0:
            item = ready.popleft()
            if isinstance(item, Delta) and len(item.ops) > left:
                item, rest = cut(item, left)
                if rest is not None:
                    ready.appendleft(rest)
                    batch.append(item)
                    break
            batch.append(item)
            ended.append(item.origin)
            left -= max(1, len(item.ops))
        return batch, ended


def cut(delta: Delta, ops: int) -> tuple[Delta, Delta | None]:
    """Into the versions that begin within the first so many ops, and the rest, if there is one."""
    end = max(1, ops)
    while end < len(delta.ops) and delta.ops[end].version == delta.ops[end - 1].version:
        end += 1
    if end >= len(delta.ops):
        return delta, None
    middle = delta.ops[end - 1].version
    first = replace(delta, upto=middle, ops=delta.ops[:end], last=False)
    return first, replace(delta, after=middle, ops=delta.ops[end:])
