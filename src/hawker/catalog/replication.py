"""Replication of one scope, without I/O: eager push (rumor mongering), pull of what is missing, and anti-entropy, after
Demers et al., "Epidemic Algorithms for Replicated Database Maintenance", 1987. Corrosion replicates in the same three
ways; its rows merge by column (cr-sqlite), here each row has one owner and whole rows are published.

Takes messages, members, commits and the results of batches; leaves messages to send, questions to ask over streams, and
what `inbound` has ready to be applied.
"""

from collections.abc import Callable, Collection, Mapping

from hawker.catalog import fan_out
from hawker.catalog.anti_entropy import Rounds
from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope
from hawker.catalog.fan_out import PushBatcher, ReplicaPeers
from hawker.catalog.inbound import SOURCES, WAIT_S, Inbound, Missing
from hawker.catalog.messages import (
    Bulk,
    DeltaPart,
    Digest,
    Head,
    Ihave,
    Message,
    PositionAnswer,
    PositionQuery,
    Pull,
    PullAnswer,
    Push,
    Rumor,
    Txs,
    Vector,
    VectorEntry,
    Want,
    passed_on,
    rumor_of,
    tx_of,
)
from hawker.catalog.streams import Inquiry, outdated
from hawker.clock import Clock
from hawker.ids import NodeId

PUSH_BYTES = 64 << 10
MESSAGE_BYTES = 256 << 10
BULK_BYTES = 1 << 20
IHAVE_EVERY_S = 0.2
IHAVE_PEERS = 3
IHAVE_TICKS = 4
IHAVE_HEADS = 256
HELD_S = 0.5
BULK_WANTS = 16
_NEVER = float("inf")


class Replication:
    """`out` and `questions` are for the caller to send; `renew_above` is not None when this node's own stream must
    begin again, in an epoch above that."""

    def __init__(
        self,
        me: NodeId,
        scope: Scope,
        region: str,
        positions: Mapping[NodeId, Position],
        clock: Clock,
        *,
        proven: bool,
        intake: Callable[[NodeId, Mapping[NodeId, Position]], Inbound] = Inbound,
    ) -> None:
        self.me, self.scope = me, scope
        self._clock = clock
        self.peers = ReplicaPeers(region)
        self._push_batcher = PushBatcher(self.peers, clock.random)
        self.inbound = intake(me, positions)
        self.vector, self.pulls = self.inbound.vector, self.inbound.pulls
        self.out: list[tuple[tuple[NodeId, ...], Message]] = []
        self.questions: list[tuple[NodeId, Pull]] = []
        own = self.vector.get(me)
        self.renew_above: int | None = None if proven else max(own.epoch, own.fence, 0)
        self._inquiry: Inquiry | None = Inquiry(clock) if proven else None
        self._fresh: dict[NodeId, int] = {}
        self._rounds = Rounds(clock.monotonic(), clock.random)
        self._ihave_due = clock.monotonic() + IHAVE_EVERY_S * clock.random()
        self._asked: list[Missing] = []
        self.holding = False
        self.refused = 0

    @property
    def settled(self) -> bool:
        """Whether this node may write: it is certain that nobody knows more of it than it does itself."""
        return self._inquiry is None and self.renew_above is None

    # what happens here

    def committed(self, tx: ReplicatedTx) -> None:
        """A local transaction, which is on disk."""
        own = self.vector.get(self.me)
        if (tx.epoch, tx.version) > (own.epoch, own.applied):
            position = Position(epoch=tx.epoch, applied=tx.version, floor=own.floor, fence=own.fence)
            self.vector.set(self.me, position)
            self._fresh[self.me] = IHAVE_TICKS
        self._spread(rumor_of(tx), without=(self.me,))

    def moved(self, origin: NodeId, position: Position) -> None:
        """The storage has a stream elsewhere: after a batch, a fence or a renewal."""
        before = self.vector.get(origin)
        if self.inbound.moved(origin, position):
            self._fresh[origin] = IHAVE_TICKS
        if origin != self.me:
            return
        if outdated(position, -1, -1, position.fence):
            self.renew(position.fence)
        elif position.epoch > before.epoch:
            self._inquiry = None
            if self.renew_above is not None and self.renew_above < position.epoch:
                self.renew_above = None
            self._announce(self.me, without=())

    def renew(self, above: int) -> None:
        """This node's stream has to begin again, in an epoch above that."""
        self.renew_above = max(above, self.vector.get(self.me).epoch, self.renew_above or 0)

    def _doubt(self, epoch: int, version: int) -> None:
        """Somebody says how far this node itself is. If that is more than it knows, its memory was taken away."""
        if outdated(self.vector.get(self.me), epoch, version):
            self.renew(epoch)

    # messages

    def receive(self, sender: NodeId, message: Message) -> None:
        """Takes a message of this scope, all but `Pull`, which needs the storage."""
        match message:
            case Push():
                for each in message.rumors:
                    self._hear(sender, each)
            case Txs():
                for tx in message.txs:
                    self._take_tx(sender, tx)
            case DeltaPart():
                self._take_delta(message.delta)
            case Ihave():
                for head in message.heads:
                    self._behind(sender, head.origin, head.epoch, head.version)
            case Bulk():
                for head in message.heads:
                    self._behind(sender, head.origin, head.epoch, head.version)
                    self.pulls.bulky(head.origin, sender, self._clock.monotonic())
            case _:
                self._compare(sender, message)

    def _compare(self, sender: NodeId, message: Message) -> None:
        match message:
            case Digest():
                if buckets := self.vector.differing(message.digest):
                    self._send((sender,), self._vector(buckets, back=True))
            case Vector():
                for entry in message.entries:
                    self.entry(sender, entry)
                if message.back:
                    self._send((sender,), self._vector(message.buckets, back=False))
            case PositionQuery():
                entry = VectorEntry.of(sender, self.vector.get(sender))
                self._send((sender,), PositionAnswer(scope=self.scope, entry=entry))
            case PositionAnswer() if self._inquiry is not None and message.entry.origin == self.me:
                self._inquiry.heard(sender)
                self.entry(sender, message.entry)
            case _:
                pass

    def entry(self, sender: NodeId, entry: VectorEntry) -> None:
        """Takes note of what `sender` has of a stream."""
        if entry.fence > self.inbound.fence(entry.origin) and self.inbound.room(entry.origin):
            self.inbound.fences[entry.origin] = entry.fence
        self._behind(sender, entry.origin, entry.epoch, entry.applied)

    def _behind(self, sender: NodeId, origin: NodeId, epoch: int, version: int) -> None:
        """Somebody has a stream up to there; ask for it in a while, if it is more."""
        if origin == self.me:
            self._doubt(epoch, version)
        elif self.inbound.lacks(origin, epoch, version):
            self.pulls.want(origin, epoch, version, sender, self._soon(sender))

    def _hear(self, sender: NodeId, heard: Rumor) -> None:
        """Most have been here before: those are not even read."""
        if heard.origin == self.me:
            self._doubt(heard.epoch, heard.version)
        elif self.inbound.is_news(heard.origin, heard.epoch, heard.version):
            try:
                tx = tx_of(heard)
            except ValueError:
                self.refused += 1
                return
            if self._take_tx(sender, tx) and heard.hop < fan_out.MAX_HOPS:
                self._spread(passed_on(heard), without=(self.me, sender, heard.origin))

    def _take_tx(self, sender: NodeId, tx: ReplicatedTx) -> bool:
        if tx.scope is not self.scope:
            return False
        if tx.origin == self.me:
            self._doubt(tx.epoch, tx.version)
            return False
        return self.inbound.take_tx(tx, sender, self._soon(sender))

    def _take_delta(self, delta: Delta) -> None:
        if delta.scope is self.scope and delta.origin != self.me:
            self.inbound.take_delta(delta, self._clock.monotonic())

    def _soon(self, sender: NodeId) -> float:
        return self._clock.monotonic() + WAIT_S + self.peers.rtt_s(sender)

    def _vector(self, buckets: tuple[int, ...], *, back: bool) -> Vector:
        entries = tuple(VectorEntry.of(origin, position) for origin, position in self.vector.within(buckets))
        return Vector(scope=self.scope, buckets=buckets, entries=entries, back=back)

    def _spread(self, news: Rumor, *, without: Collection[NodeId]) -> None:
        """What is long is only announced."""
        if len(news.body) > PUSH_BYTES:
            self._announce(news.origin, without=without)
        else:
            self._push_batcher.put(news, self._clock.monotonic(), without=without)

    def post(self) -> None:
        """Send what news is due."""
        if self._push_batcher.due < _NEVER:
            for to, rumors in self._push_batcher.take(self._clock.monotonic()):
                self._send(to, Push(scope=self.scope, rumors=rumors))

    def _announce(self, origin: NodeId, *, without: Collection[NodeId]) -> None:
        epoch, version = self.inbound.where(origin)
        if version >= 0:
            head = Head(origin=origin, epoch=epoch, version=version)
            chosen = fan_out.choose(self.peers, self._clock.random, without=without)
            self._send(chosen, Ihave(scope=self.scope, heads=(head,)))

    def _send(self, to: Collection[NodeId], message: Message) -> None:
        if to:
            self.out.append((tuple(to), message))

    # questions over streams

    def answered(self, sender: NodeId, parts: PullAnswer | None) -> None:
        """Takes the answer to the last of `questions`; None when nobody answered."""
        now = self._clock.monotonic()
        for tx in parts.txs if parts is not None else ():
            self._take_tx(sender, tx)
        for delta in parts.deltas if parts is not None else ():
            self._take_delta(delta)
        for missing in self._asked:
            if parts is not None and parts.more:
                missing.sources = [sender, *missing.sources[: SOURCES - 1]]
            missing.due = now if parts is not None and parts.more else now + WAIT_S
        self._asked = []

    def _ask(self, whom: NodeId, missing: list[Missing], now: float) -> None:
        """One question at a time; what is wanted meanwhile waits for the next."""
        if self._asked:
            for each in missing:
                each.due, each.attempts = now + WAIT_S, each.attempts - 1
            return
        self._asked = missing
        for each in missing:
            each.due = float("inf")
        wants = tuple(self.inbound.want(each) for each in missing)
        self.questions.append((whom, Pull(scope=self.scope, wants=wants, max_bytes=BULK_BYTES)))

    # time

    def next_due(self) -> float:
        due = min(self._rounds.due, self.pulls.next_due(), self._push_batcher.due)
        if self._fresh:
            due = min(due, self._ihave_due)
        return due if self._inquiry is None else min(due, self._inquiry.due)

    def tick(self) -> None:
        """Do what is due."""
        now = self._clock.monotonic()
        if self._inquiry is not None:
            self._inquire(self._inquiry, now)
        if self._fresh and self._ihave_due <= now:
            self._ihave_due = now + IHAVE_EVERY_S
            self._tell_fresh()
        if self._rounds.due <= now:
            whom = self._rounds.next(now, self.peers)
            if whom is not None:
                self._send_digest(whom)
        if len(self.pulls) and self.pulls.next_due() <= now:
            self._pull(now)

    def _send_digest(self, whom: NodeId) -> None:
        self._send((whom,), Digest(scope=self.scope, digest=self.vector.digest()))

    def _inquire(self, inquiry: Inquiry, now: float) -> None:
        if inquiry.passed(now, self.peers):
            self._inquiry = None
        elif inquiry.failed(now):
            self._inquiry = None
            self.renew(0)
        elif inquiry.due <= now:
            self._send(inquiry.whom(now, self.peers), PositionQuery(scope=self.scope))

    def _tell_fresh(self) -> None:
        heads: list[Head] = []
        for origin in list(self._fresh)[:IHAVE_HEADS]:
            position = self.vector.get(origin)
            if position.applied >= 0:
                heads.append(Head(origin=origin, epoch=position.epoch, version=position.applied))
            self._fresh[origin] -= 1
            if self._fresh[origin] <= 0:
                del self._fresh[origin]
        if heads:
            chosen = fan_out.pick(self.peers.alive, IHAVE_PEERS, self._clock.random)
            self._send(chosen, Ihave(scope=self.scope, heads=tuple(heads)))

    def _pull(self, now: float) -> None:
        """One message to each peer that is asked; what is long, or much, in one question over a stream."""
        if self.holding or self.inbound.full:
            self.pulls.later(now + (HELD_S if self.holding or self.inbound.stalled else WAIT_S))
            return
        due = self.pulls.take(now, self.peers, self._clock.random)
        for origin in self.pulls.given_up():
            self.inbound.reorder_buffer.drop(origin)  # perhaps its owner lost what comes before, and nobody ever had it
        much = len(due) >= BULK_WANTS
        bulky = [(whom, missing) for whom, missing in due if missing.bulky or much]
        if bulky:
            self._ask(bulky[0][0], [missing for _, missing in bulky], now)
        asked: dict[NodeId, list[Want]] = {}
        for whom, missing in due:
            if not (missing.bulky or much):
                asked.setdefault(whom, []).append(self.inbound.want(missing))
        for whom, wants in asked.items():
            self._send((whom,), Pull(scope=self.scope, wants=tuple(wants), max_bytes=MESSAGE_BYTES))
