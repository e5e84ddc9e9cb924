"""Both scopes of a replica, without I/O: takes what the mesh brings, leaves messages to send, questions to ask over
streams, answers to give, and one job after the other for the storage's thread. A shell (replica.py) or a simulation
carries them out; what a job did comes back by `finish`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from hawker.catalog import fan_out
from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope, Token
from hawker.catalog.fan_out import ReplicaPeer
from hawker.catalog.jobs import Apply, ApplySlices, Collect, Job, JobResult, RaiseFence, Renew, Serve
from hawker.catalog.messages import (
    Bulk,
    DeltaPart,
    ForgetOrigin,
    Head,
    Message,
    Pull,
    PullAnswer,
    SnapshotAsk,
    SnapshotMeta,
    SnapshotPart,
    SnapshotRead,
    Txs,
    Want,
    decode,
    size_of,
)
from hawker.catalog.replication import BULK_BYTES, MESSAGE_BYTES, Replication
from hawker.catalog.streams import in_scope, next_epoch
from hawker.clock import Clock
from hawker.ids import NodeId

LAG_SAMPLES = 1024


class ReplicationLag:
    """Replication lag of the last `LAG_SAMPLES` transactions: seconds from an owner's commit, by the owner's clock,
    until it can be read here."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=LAG_SAMPLES)

    def note(self, batch: Iterable[ReplicatedTx | Delta], now: float) -> None:
        self._seconds.extend(max(0.0, now - item.at) for item in batch if isinstance(item, ReplicatedTx))

    def percentile(self, share: float) -> float | None:
        """The lag in seconds of this share; `share` is 0 to 1. None before anything came."""
        if not self._seconds:
            return None
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


SERVED = 3
"""Pulls over streams that are answered at a time; one more is refused."""
WAITING = 64
"""Pulls that wait for the storage's thread."""
GRACE_S = 24 * 3600.0
COLLECT_EVERY_S = 60.0


class ReplicationEngine:
    """`out` are messages and whom they are for, `questions` are asked over streams and answered by `answered`;
    `answers` are to questions of others, by the number that `ask` gave; None when this node is too busy to answer."""

    def __init__(
        self,
        me: NodeId,
        region: str,
        positions: Mapping[Scope, Mapping[NodeId, Position]],
        clock: Clock,
        *,
        proven: bool,
        grace_s: float = GRACE_S,
        part_bytes: int = BULK_BYTES,
        replication: Callable[..., Replication] = Replication,
    ) -> None:
        self.me, self._region, self._clock, self._grace_s = me, region, clock, grace_s
        self._part_bytes = part_bytes
        self.scopes = {scope: replication(me, scope, region, positions[scope], clock, proven=proven) for scope in Scope}
        self.out: list[tuple[tuple[NodeId, ...], Message]] = []
        self.questions: list[tuple[NodeId, Scope, Pull]] = []
        self.answers: list[tuple[int, PullAnswer | None]] = []
        self.slices, self.lag = ApplySlices(), ReplicationLag()
        self.refused = 0
        self.quarantined = 0
        self.unknown = 0
        self._serves: deque[Serve] = deque()
        self._ended: list[tuple[Scope, list[NodeId]]] = []
        self._turn = False
        self._asks = 0
        self._epoch: int | None = None
        self._collect_due = clock.monotonic() + min(COLLECT_EVERY_S, grace_s)

    @property
    def stalled(self) -> bool:
        """Whether the storage cannot be written. Then nothing is taken in, so that no more waits than does already:
        anti-entropy finds what was missed. Who asks is answered still."""
        return any(scope.inbound.stalled for scope in self.scopes.values())

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        for scope in self.scopes.values():
            scope.inbound.stalled = stalled

    @property
    def settled(self) -> bool:
        """Whether this node may write."""
        return all(scope.settled for scope in self.scopes.values())

    def position(self, scope: Scope, origin: NodeId) -> Position:
        return self.scopes[scope].vector.get(origin)

    @property
    def queued(self) -> int:
        """Changes that wait to be applied."""
        return sum(len(scope.inbound.ready) + len(scope.inbound.reorder_buffer) for scope in self.scopes.values())

    @property
    def gaps(self) -> int:
        """Versions that are known to be missing."""
        return sum(scope.inbound.gaps() for scope in self.scopes.values())

    @property
    def peers(self) -> int:
        """Other nodes that are alive."""
        return len(self.scopes[Scope.GLOBAL].peers.alive)

    def reached(self, token: Token) -> bool:
        """Whether this replica has it, or knows that its owner began anew. The scopes' epochs are never the same."""
        positions = [scope.vector.get(token.origin) for scope in self.scopes.values()]
        for position in positions:
            if position.epoch == token.epoch:
                return position.applied >= token.version
        return all(position.epoch > token.epoch for position in positions)

    # members

    def tell(self, peer: ReplicaPeer) -> None:
        """A node that is alive, or suspected, or whose round trip or region is another now."""
        if peer.node == self.me:
            return
        self.scopes[Scope.GLOBAL].peers.tell(peer)
        if peer.region == self._region:
            self.scopes[Scope.REGION].peers.tell(peer)
        else:
            self.scopes[Scope.REGION].peers.lose(peer.node)

    def lose(self, node: NodeId) -> None:
        """Takes note that `node` is down or left. What it said stays."""
        for scope in self.scopes.values():
            scope.peers.lose(node)

    def forget(self, origin: NodeId) -> int:
        """An operator's word. Up to which epoch."""
        epoch = in_scope(max(scope.vector.get(origin).epoch for scope in self.scopes.values()), Scope.GLOBAL)
        self._fence(origin, epoch, hop=0, without={self.me})
        return epoch

    def hold(self, *, pulls: bool) -> None:
        """Whether pulls wait: while a snapshot comes, which has it all."""
        for scope in self.scopes.values():
            scope.holding = pulls

    def committed(self, txs: Iterable[ReplicatedTx]) -> None:
        for tx in txs:
            self.scopes[tx.scope].committed(tx)
        self._gather()

    # messages

    def receive(self, sender: NodeId, raw: bytes) -> None:
        """Takes a message of `sender`. What cannot be read is counted and dropped."""
        try:
            message = decode(raw)
        except ValueError:
            self.refused += 1
            return
        self.take(sender, message)

    def take(self, sender: NodeId, message: Message) -> None:
        match message:
            case Txs() | DeltaPart():
                scope = _scope_of(message)
                if scope is not None and self._exchanges(sender, scope):
                    self.scopes[scope].receive(sender, message)
            case Pull():
                self._serve(sender, message, None)
            case PullAnswer() | SnapshotAsk() | SnapshotMeta() | SnapshotRead() | SnapshotPart():
                self.refused += 1
            case ForgetOrigin():
                inbound = self.scopes[Scope.GLOBAL].inbound
                if message.epoch > inbound.fence(message.origin) and inbound.room(message.origin):
                    self._fence(message.origin, message.epoch, message.hop + 1, without={self.me, sender})
            case _:
                if self._exchanges(sender, message.scope):
                    self.scopes[message.scope].receive(sender, message)
        self._gather()

    def ask(self, sender: NodeId, message: Message) -> int:
        """A question over a stream; its number, under which `answers` will have what to say. Raises `ValueError`."""
        if not isinstance(message, Pull):
            raise ValueError("only a pull is asked over a stream")
        self._asks += 1
        self._serve(sender, message, self._asks)
        return self._asks

    def answered(self, sender: NodeId, scope: Scope, parts: PullAnswer | None) -> None:
        self.scopes[scope].answered(sender, parts)
        self._gather()

    def _exchanges(self, sender: NodeId, scope: Scope) -> bool:
        """A region's streams are not taken from another region's nodes; a member that is new may not be known yet."""
        peers = self.scopes[Scope.GLOBAL].peers
        return scope is Scope.GLOBAL or sender in self.scopes[scope].peers or sender not in peers

    def _fence(self, origin: NodeId, epoch: int, hop: int, without: set[NodeId]) -> None:
        for scope in self.scopes.values():
            fences = scope.inbound.fences
            fences[origin] = max(epoch, fences.get(origin, -1))
        if hop <= fan_out.MAX_HOPS:
            chosen = fan_out.choose(self.scopes[Scope.GLOBAL].peers, self._clock.random, without=without)
            if chosen:
                self.out.append((tuple(chosen), ForgetOrigin(origin=origin, epoch=epoch, hop=hop)))

    # jobs

    def next_job(self) -> Job | None:
        """The job that the storage should do now. There is one at a time: `finish` it before the next; but while one is
        `stalled`, there are others that only read."""
        if self.stalled:
            return self._next_serve()
        for scope in self.scopes.values():
            for origin, epoch in scope.inbound.fences.items():
                return RaiseFence(origin, epoch)
        if renewal := self._next_renewal():
            return renewal
        self._turn = not self._turn
        job = self._next_serve() if self._turn else self._next_apply()
        job = job or self._next_apply() or self._next_serve()
        if job is None and self._collect_due <= self._clock.monotonic():
            self._collect_due = self._clock.monotonic() + min(COLLECT_EVERY_S, self._grace_s)
            return Collect(self._clock.now() - self._grace_s)
        return job

    def finish(self, job: Job, done: JobResult) -> None:
        if done.outcome is not None:
            self.quarantined += done.outcome.quarantined
            self.unknown += done.outcome.unknown
        if isinstance(job, Apply):
            self.lag.note(job.batch, self._clock.now())
            for scope, ended in self._ended:
                self.scopes[scope].inbound.applied(ended)
            self._ended = []
        for (origin, scope), position in done.positions.items():
            self.scopes[scope].moved(origin, position)
        if isinstance(job, RaiseFence):
            for each in self.scopes.values():
                each.inbound.fenced(job.origin, job.epoch)
        if isinstance(job, Renew):
            self._renewed(job)
        if isinstance(job, Serve):
            self._answer(job, done.parts)
        self._gather()

    def _renewed(self, job: Renew) -> None:
        """The storage knew of a later epoch than anybody else; then once more, so that the two go together."""
        epoch = self.position(job.scope, self.me).epoch
        if epoch > job.epoch:
            self.scopes[job.scope].renew(epoch)

    def _next_renewal(self) -> Renew | None:
        """Both streams, in epochs that go together."""
        needy = [scope for scope in self.scopes.values() if scope.renew_above is not None]
        above = max((scope.renew_above or 0 for scope in needy), default=0)
        if not needy:
            self._epoch = None
            return None
        if self._epoch is None or above >= self._epoch:
            self._epoch = next_epoch(self._clock, above)
            needy = [*self.scopes.values()]
            for scope in needy:
                scope.renew(above)
        return Renew(self.me, needy[0].scope, in_scope(self._epoch, needy[0].scope))

    def _next_apply(self) -> Apply | None:
        for scope in self.scopes.values():
            if scope.inbound.ready:
                batch, ended = self.slices.take(scope.inbound.ready)
                self._ended.append((scope.scope, ended))
                return Apply(tuple(batch))
        return None

    def _next_serve(self) -> Serve | None:
        return self._serves.popleft() if self._serves else None

    def _serve(self, sender: NodeId, pull: Pull, ask: int | None) -> None:
        wants = tuple(self._possible(pull))
        if (ask is not None and self._asked_now() >= SERVED) or len(self._serves) >= WAITING:
            if ask is not None:
                self.answers.append((ask, None))
        elif wants:
            most = min(self._part_bytes, pull.max_bytes, MESSAGE_BYTES if ask is None else BULK_BYTES)
            self._serves.append(Serve(sender, pull.scope, wants, max(1, most), ask))
        elif ask is not None:
            self.answers.append((ask, PullAnswer(txs=(), deltas=(), more=False)))

    def _asked_now(self) -> int:
        return sum(serve.ask is not None for serve in self._serves)

    def _possible(self, pull: Pull) -> Iterable[Want]:
        """What of it this replica can answer: where it has more, and is in no reset itself."""
        vector = self.scopes[pull.scope].vector
        for want in pull.wants:
            position = vector.get(want.origin)
            same = want.epoch == position.epoch
            more = (position.epoch, position.applied) > (want.epoch, want.after if want.since < 0 else -1)
            if position.applied >= 0 and position.epoch > 0 and more:
                yield Want(
                    origin=want.origin,
                    epoch=position.epoch,
                    after=want.after if same else -1,
                    since=want.since if same else -1,
                )

    def _answer(self, serve: Serve, parts: PullAnswer | None) -> None:
        """Over a stream as it is; as messages what is whole, and of the rest that it is there. Nothing where the
        storage could not be read."""
        if serve.ask is not None:
            self.answers.append((serve.ask, parts))
        if serve.ask is not None or parts is None:
            return
        heads: list[Head] = []
        txs: list[ReplicatedTx] = []
        for tx in parts.txs:
            if size_of(tx) <= MESSAGE_BYTES:
                txs.append(tx)
            else:
                heads.append(_head(tx.origin, tx.epoch, tx.version))
        if txs:
            self.out.append(((serve.to,), Txs(txs=tuple(txs))))
        for delta in parts.deltas:
            if delta.last and size_of(delta) <= 2 * MESSAGE_BYTES:
                self.out.append(((serve.to,), DeltaPart(delta=delta)))
            else:
                heads.append(_head(delta.origin, delta.epoch, delta.head))
        if heads:
            self.out.append(((serve.to,), Bulk(scope=serve.scope, heads=tuple(heads))))

    # time

    def tick(self) -> float:
        """Do what is due; when there will be something again, by the monotonic clock."""
        for scope in self.scopes.values():
            scope.tick()
        self._gather()
        due = min(scope.next_due() for scope in self.scopes.values())
        return due if self.stalled else min(due, self._collect_due)

    def _gather(self) -> None:
        for scope in self.scopes.values():
            scope.post()
            if scope.out:
                self.out.extend(scope.out)
                scope.out.clear()
            if scope.questions:
                self.questions.extend((whom, scope.scope, pull) for whom, pull in scope.questions)
                scope.questions.clear()


def _head(origin: NodeId, epoch: int, version: int) -> Head:
    return Head(origin=origin, epoch=epoch, version=version)


def _scope_of(message: Txs | DeltaPart) -> Scope | None:
    match message:
        case DeltaPart():
            return message.delta.scope
        case Txs():
            return message.txs[0].scope if message.txs else None
