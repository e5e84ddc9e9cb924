"""This node among the others: the protocol's core with a clock, a transport and a listener. Decides nothing itself."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import assert_never

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from hawker import log
from hawker.clock import Clock
from hawker.errors import Conflict, HawkerError, TooLarge, Unavailable
from hawker.gossip.contract import DATAGRAM_BYTES, Listener, Member, MeshTransport, NodeMeta, Trouble
from hawker.gossip.effects import (
    Effects,
    Event,
    FallbackPing,
    Forgot,
    JoinAccepted,
    MemberChanged,
    MessageReceived,
    Rejected,
    Rekeyed,
    Troubled,
)
from hawker.gossip.failure_detector import Timing
from hawker.gossip.frames import MalformedFrame
from hawker.gossip.keyring import GossipKeyring, checked, rank_of
from hawker.gossip.members import Identity, MemberState
from hawker.gossip.packets import Opener, Sealer, new_boot
from hawker.gossip.streams import Streams
from hawker.gossip.swim import Swim
from hawker.ids import NodeId

NOTE_BYTES = 1 << 20
_NOTES = 256
_CARRIERS = 8
_NOTE_S = 10.0
_FALLBACK_PINGS = 8
_FAREWELL_S = 1.0
_TROUBLES = 32


class GossipNode:
    """Implements `Mesh`. `advertise` is HOST:PORT where others reach this node; None for where the transport is bound.
    `fences` are the forgotten nodes as far as they were kept; `epoch` is that of this node's catalog stream."""

    def __init__(
        self,
        *,
        node: NodeId,
        cluster: str,
        keyring: GossipKeyring,
        transport: MeshTransport,
        advertise: str | None,
        meta: NodeMeta,
        clock: Clock,
        listener: Listener,
        epoch: int = 0,
        fences: Mapping[NodeId, int] | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._node, self._cluster, self._keyring = node, cluster, checked(keyring)
        self._transport, self._advertise, self._meta = transport, advertise, meta
        self._clock, self._listener, self._timing = clock, listener, timing or Timing()
        self._epoch, self._fences = epoch, fences or {}
        self._boot = new_boot(clock)
        self._sealer = Sealer(keyring, node, self._boot, cluster)
        self._opener = Opener(keyring, cluster)
        self._streams = Streams(node, self._boot, cluster, keyring, transport, listener, clock)
        self._log = log.bind("hawker.gossip", node=node)
        self._core: Swim | None = None
        self._wake, self._wakes_at = anyio.Event(), float("inf")
        self._notes: deque[tuple[NodeId, bytes]] = deque(maxlen=_NOTES)  # the oldest goes
        self._carriers = self._fallback_pings = 0
        self._tasks: TaskGroup | None = None
        self._answered = anyio.Event()
        self._known: Member | None = None
        self._rejected: Rejected | None = None
        self._is_joining = self._let_in = self._expelled = False
        self._troubles: deque[Trouble] = deque(maxlen=_TROUBLES)

    # What is believed.

    @property
    def me(self) -> Member:
        return self._dated(self._swim.me)

    @property
    def keyring(self) -> GossipKeyring:
        return self._keyring

    @property
    def troubles(self) -> Sequence[Trouble]:
        """The latest troubles, the last one at the end."""
        return tuple(self._troubles)

    def members(self) -> Sequence[Member]:
        return [self._dated(peer) for peer in self._swim.membership.members]

    def member(self, node: NodeId) -> Member | None:
        peer = self._swim.membership.members.get(node)
        return None if peer is None else self._dated(peer)

    def fences(self) -> Mapping[NodeId, int]:
        """The nodes that were forgotten, each with the epoch up to which it is ignored."""
        return dict(self._swim.membership.members.fences)

    def behind(self) -> Sequence[NodeId]:
        """Living members that were not yet heard to have this keyring: the next step of a rotation waits for them."""
        rank = self._swim.dispatcher.rank
        return [peer.node for peer in self._swim.membership.members.others if peer.keys != rank]

    @property
    def local_health(self) -> int:
        """The health of this node: 0 is well; see `health`."""
        return self._swim.membership.health.score

    @property
    def _swim(self) -> Swim:
        assert self._core is not None, "asked before it served"
        return self._core

    def _dated(self, peer: MemberState) -> Member:
        member = peer.member()
        since = self._clock.now() - (self._clock.monotonic() - member.since)
        return msgspec.structs.replace(member, since=since)

    # Messages.

    def send(self, to: NodeId, message: bytes) -> None:
        if len(message) > NOTE_BYTES:
            raise TooLarge(f"a message of {len(message)} bytes; ask takes longer ones than {NOTE_BYTES}")
        peer = self._swim.membership.members.get(to)
        if peer is None or not peer.living or to == self._node:
            return
        if len(message) <= DATAGRAM_BYTES:
            self._post(self._swim.note(peer, message))
        else:
            self._notes.append((to, message))
            if self._carriers < _CARRIERS and self._tasks is not None:
                self._carriers += 1
                self._tasks.start_soon(self._carry)

    async def ask(self, to: NodeId, message: bytes, *, timeout_s: float) -> bytes:
        peer = self._swim.membership.members.get(to)
        if peer is None:
            raise Unavailable(f"node {to} is not known here; see `hawker node list`")
        return await self._streams.ask(to, peer.address, message, timeout_s)

    async def _carry(self) -> None:
        """Long messages, one after the other, until none is left."""
        try:
            while self._notes:
                to, message = self._notes.popleft()
                peer = self._swim.membership.members.get(to)
                if peer is not None and peer.living:
                    await self._note(to, peer.address, message)
        finally:
            self._carriers -= 1

    async def _note(self, to: NodeId, address: str, message: bytes) -> None:
        try:
            await self._streams.note(to, address, message, _NOTE_S)
        except HawkerError as error:
            self._log.debug("message was lost", extra={"to": to, "bytes": len(message), "why": str(error)})

    # What an operator or the catalog says.

    def declare(self, *, epoch: int | None = None, meta: NodeMeta | None = None) -> None:
        self._act(self._swim.declare(self._clock.monotonic(), epoch=epoch, meta=meta))

    def forget(self, node: NodeId, fence: int) -> None:
        """Forgets a node everywhere: what it says in epochs up to `fence` is ignored. It may come back with a newer
        one."""
        self._act(self._swim.forget(node, fence, self._clock.monotonic()))

    def rekey(self, keyring: GossipKeyring) -> None:
        """Has this keyring, one step on from `keyring`, used everywhere. Raises `BadRequest`, `Conflict`."""
        if rank_of(checked(keyring)) <= rank_of(self._keyring):
            raise Conflict("the keyring has changed meanwhile; look at it and decide again")
        self._act(self._swim.rekey(keyring, self._clock.monotonic()))

    async def join(self, seeds: Sequence[str], *, timeout_s: float = 10.0) -> Member | None:
        """Ask nodes at these addresses to let this one in. Returns what the cluster believed of this node before, None
        if nothing. Raises `Conflict` when it was refused, `Unavailable` when nobody answered; it goes on trying."""
        self._answered, self._is_joining, self._let_in = anyio.Event(), True, False
        self._known = self._rejected = None
        self._act(self._swim.join(seeds, self._clock.monotonic()))
        try:
            with anyio.move_on_after(timeout_s):
                await self._answered.wait()
        finally:
            self._is_joining = False
        if self._let_in:
            return self._known
        if self._rejected is not None:
            raise Conflict(self._rejected.text)
        raise Unavailable(f"nobody at {', '.join(seeds)} answered within {timeout_s:g} s; still trying")

    async def leave(self) -> None:
        self._act(self._swim.leave(self._clock.monotonic()))
        with anyio.move_on_after(_FAREWELL_S):
            while self._swim.membership.broadcasts and self._swim.membership.members.others:
                await self._clock.sleep(self._timing.gossip_s / 4)

    # Life.

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Gossips until cancelled. It counts as started once it is reachable. Raises `CannotStart`, and `Conflict` when
        another node turns out to have this one's id and was first."""
        async with anyio.create_task_group() as self._tasks:
            await self._tasks.start(partial(self._transport.serve, self._heard, self._streams.serve))
            self._core = self._new_core(self._advertise or self._transport.address)
            self._tasks.start_soon(self._beat)
            task_status.started()

    def _new_core(self, address: str) -> Swim:
        identity = Identity(
            node=self._node,
            cluster=self._cluster,
            address=address,
            boot=self._boot,
            meta=self._meta,
            epoch=self._epoch,
            fences=self._fences,
        )
        clock = self._clock
        now = clock.monotonic()
        return Swim(identity, self._keyring, now=now, chance=clock.random, wall=clock.now, timing=self._timing)

    async def _beat(self) -> None:
        """Ticks when the core wants to, and sooner when what was heard made it want to."""
        while True:
            now = self._clock.monotonic()
            if self._swim.next_at <= now:
                self._act(self._swim.tick(now))
                await anyio.lowlevel.checkpoint()
                continue
            self._wake, self._wakes_at = anyio.Event(), self._swim.next_at
            with anyio.move_on_after(self._wakes_at - now):
                await self._wake.wait()
            if self._expelled and self._rejected is not None:
                raise Conflict(self._rejected.text)

    def _heard(self, address: str, datagram: bytes) -> None:
        opened = self._opener.open(datagram)
        if opened is None or self._core is None:
            return
        now = self._clock.monotonic()
        try:
            outcome = self._core.receive(opened.sender, opened.boot, address, opened.payload, now, opened.foreign)
        except MalformedFrame as error:
            self._log.warning("unreadable datagram", extra={"sender": opened.sender, "why": str(error)})
            return
        self._act(outcome)

    def _post(self, outcome: Effects) -> None:
        for send in outcome.sends:
            self._transport.send(send.address, self._sealer.seal(send.payload))

    def _act(self, outcome: Effects) -> None:
        self._post(outcome)
        for event in outcome.events:
            self._tell(event)
        if self._swim.next_at < self._wakes_at:
            self._wake.set()

    def _tell(self, event: Event) -> None:
        match event:
            case MemberChanged():
                peer = self._swim.membership.members.get(event.member.node)
                if peer is not None:
                    self._log.info("member changed", extra={"member": peer.node, "fate": event.member.fate.value})
                    self._listener.member(msgspec.structs.replace(self._dated(peer), fate=event.member.fate))
            case MessageReceived():
                self._listener.message(event.node, event.message)
            case Forgot():
                self._log.warning("node was forgotten", extra={"forgotten": event.node, "fence": event.fence})
                self._listener.forget(event.node, event.fence)
            case Rekeyed():
                self._rekeyed(event.keyring)
            case JoinAccepted():
                self._let_in = True
                self._known = event.known
                self._answered.set()
            case Rejected():
                self._refused(event)
            case FallbackPing():
                if self._fallback_pings < _FALLBACK_PINGS and self._tasks is not None:
                    self._fallback_pings += 1
                    self._tasks.start_soon(self._fallback_ping, event)
            case Troubled():
                self._log.warning("trouble", extra={"code": event.trouble.code, "why": event.trouble.text})
                self._troubles.append(event.trouble)
                self._listener.trouble(event.trouble)
            case _:
                assert_never(event)

    def _rekeyed(self, keyring: GossipKeyring) -> None:
        self._log.warning("keyring changed", extra={"version": keyring.version, "primary": keyring.primary})
        self._keyring = keyring
        self._sealer.use(keyring)
        self._opener.use(keyring)
        self._streams.use(keyring)
        self._listener.keyring(keyring)

    def _refused(self, rejected: Rejected) -> None:
        """Another cluster stays another one. A twin may be one that is about to be found dead, so joining goes on."""
        self._rejected = rejected
        if not self._is_joining and not self._swim.dispatcher.joining:
            self._expelled = True
            self._wake.set()
        if rejected.code == "cluster":
            self._answered.set()

    async def _fallback_ping(self, ping: FallbackPing) -> None:
        try:
            if await self._streams.ping(ping.node, ping.address, self._timing.probe_s):
                self._act(self._swim.fallback_acked(ping.seq, self._clock.monotonic()))
        finally:
            self._fallback_pings -= 1
