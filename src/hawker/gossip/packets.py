"""Packets: whole frames first, then as many queued broadcasts as fit into the rest of the datagram; and datagrams,
sealed: `magic 1, flags 1, key 1, reserved 1, sender 8, boot 8, counter 8`, AES-256-GCM, tag 16.

Each process of each node has a key of its own, so a counter is nonce enough; random nonces under one shared key would
run out (docs/gossip.md). The header is authenticated with the content, which begins with the cluster's mark.
"""

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.clock import Clock
from hawker.gossip.broadcasts import BroadcastQueue
from hawker.gossip.contract import Fate
from hawker.gossip.effects import EffectBuffer
from hawker.gossip.failure_detector import Relay, Timing
from hawker.gossip.frames import Ack, Frame, MemberClaim, Nack, Note, Ping, batches, encode
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.members import MemberState
from hawker.gossip.membership import Membership
from hawker.ids import NodeId
from hawker.value_object import ValueObject

WINDOW_COUNTERS = 1024


class ReplayWindow:
    """The counters that one sender used since it booted; none is admitted twice."""

    __slots__ = ("_greatest", "_seen", "_size")

    def __init__(self, size: int = WINDOW_COUNTERS) -> None:
        self._size = size
        self._greatest = -1
        self._seen = 0  # bit n: `_greatest - n` was seen

    def admits(self, counter: int) -> bool:
        """Whether it is new. Asked before a datagram is opened, so it changes nothing."""
        behind = self._greatest - counter
        return behind < 0 or (behind < self._size and not self._seen >> behind & 1)

    def add(self, counter: int) -> None:
        ahead = counter - self._greatest
        if ahead > 0:
            kept = self._seen << ahead if ahead < self._size else 0
            self._seen = (kept | 1) & ((1 << self._size) - 1)
            self._greatest = counter
        else:
            self._seen |= 1 << -ahead


# Which counters of one sender were seen: nothing is taken twice, whoever records and repeats it. The window slides
# with the greatest counter seen; what is older than the window is refused (RFC 4303, 3.4.3).

PACKET_BYTES = 1200
MAGIC = 0xC1
MARK_BYTES = 4
_HEADER = struct.Struct(">BBBx8sQQ")
_TAG_BYTES = 16
OVERHEAD = _HEADER.size + _TAG_BYTES + MARK_BYTES
PAYLOAD_BYTES = PACKET_BYTES - OVERHEAD
"""The bytes of a packet that are left for frames."""

_SENDERS = 4096
_BOOT_BITS = 63


class Opened(ValueObject, frozen=True):
    """The content of an authentic datagram. `foreign`: its sender has our key and yet belongs to another cluster."""

    sender: NodeId
    boot: int
    """The number that says which life of the sender's process sent it."""
    payload: bytes
    """Frames, one behind the other, in clear."""
    foreign: bool


def new_boot(clock: Clock) -> int:
    """A number that names one life of a process: Unix seconds, then 31 random bits; later ones are greater where clocks
    are right."""
    random = int.from_bytes(clock.token_bytes(4), "big") >> 1
    return (int(clock.now()) << 31 | random) & ((1 << _BOOT_BITS) - 1)


def mark_of(cluster: str) -> bytes:
    return hashlib.blake2b(cluster.encode(), digest_size=MARK_BYTES).digest()


def derived(key: bytes, sender: bytes, boot: int) -> AESGCM:
    info = b"cp1" + sender + boot.to_bytes(8, "big")
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key))


class Sealer:
    """Seals what one process of one node says."""

    def __init__(self, keyring: GossipKeyring, sender: NodeId, boot: int, cluster: str) -> None:
        self._sender, self._boot, self._mark = sender.encode(), boot, mark_of(cluster)
        self._counter = 0
        self.use(keyring)

    def use(self, keyring: GossipKeyring) -> None:
        """The counter goes on, so a key that comes back never sees a nonce twice."""
        self._number = keyring.primary
        self._key = derived(keyring.keys[keyring.primary], self._sender, self._boot)

    def seal(self, payload: bytes) -> bytes:
        header = _HEADER.pack(MAGIC, 0, self._number, self._sender, self._boot, self._counter)
        nonce = bytes(4) + self._counter.to_bytes(8, "big")
        self._counter += 1
        return header + self._key.encrypt(nonce, self._mark + payload, header)


class _Sender:
    """What is kept of one process of one peer."""

    __slots__ = ("keys", "node", "window")

    def __init__(self, node: NodeId, window: ReplayWindow) -> None:
        self.node, self.window = node, window
        self.keys: dict[int, AESGCM] = {}


class Opener:
    """Opens what others say. Keeps state only of senders that proved to have the key, the last `senders` of them."""

    def __init__(
        self,
        keyring: GossipKeyring,
        cluster: str,
        *,
        senders: int = _SENDERS,
        window: Callable[[], ReplayWindow] = ReplayWindow,
    ) -> None:
        self._keyring, self._mark = keyring, mark_of(cluster)
        self._most, self._window = senders, window
        self._senders: OrderedDict[tuple[bytes, int], _Sender] = OrderedDict()

    def use(self, keyring: GossipKeyring) -> None:
        """Sealed keys that were derived of a number are dropped: another key may have it now."""
        self._keyring = keyring
        for sender in self._senders.values():
            sender.keys.clear()

    def open(self, datagram: bytes) -> Opened | None:
        """The content of a datagram; None for whatever is not authentic, or was here before."""
        if not OVERHEAD <= len(datagram) <= PACKET_BYTES:
            return None
        magic, _, number, name, boot, counter = _HEADER.unpack_from(datagram)
        if magic != MAGIC or number not in self._keyring.keys:
            return None
        sender = self._senders.get((name, boot))
        if sender is None:
            if not _is_node(name):
                return None
            sender = _Sender(NodeId(name.decode()), self._window())
        if not sender.window.admits(counter):
            return None
        content = self._decrypted(sender, number, name, boot, counter, datagram)
        if content is None:
            return None
        sender.window.add(counter)
        self._keep((name, boot), sender)
        foreign = content[:MARK_BYTES] != self._mark
        return Opened(sender.node, boot, content[MARK_BYTES:], foreign)

    def _decrypted(
        self, sender: _Sender, number: int, name: bytes, boot: int, counter: int, datagram: bytes
    ) -> bytes | None:
        key = sender.keys.get(number)
        if key is None:
            key = sender.keys[number] = derived(self._keyring.keys[number], name, boot)
        try:
            nonce = bytes(4) + counter.to_bytes(8, "big")
            return key.decrypt(nonce, datagram[_HEADER.size :], datagram[: _HEADER.size])
        except InvalidTag:
            return None

    def _keep(self, name: tuple[bytes, int], sender: _Sender) -> None:
        self._senders[name] = sender
        self._senders.move_to_end(name)
        if len(self._senders) > self._most:
            self._senders.popitem(last=False)


def _is_node(name: bytes) -> bool:
    return all(byte in b"0123456789abcdef" for byte in name)


_SYNC_DATAGRAMS = 256


class Packets:
    """Fills datagrams and leaves them in `out`. `wall` is Unix seconds."""

    def __init__(
        self,
        membership: Membership,
        broadcasts: BroadcastQueue,
        timing: Timing,
        out: EffectBuffer,
        wall: Callable[[], float],
    ) -> None:
        self._membership, self._broadcasts = membership, broadcasts
        self._timing = timing
        self._out = out
        self._wall = wall

    def wall_ms(self) -> int:
        return max(0, int(self._wall() * 1000))

    def post(self, address: str, *frames: Frame) -> None:
        """Sends these frames, and news behind them."""
        self._fill(address, b"".join(map(encode, frames)))

    def news(self, to: MemberState) -> None:
        """Sends news alone; nothing at all when there is none."""
        broadcasts = self._broadcasts.take(PAYLOAD_BYTES, self._transmits())
        if broadcasts:
            self._out.send(to.address, b"".join(broadcasts))

    def ping(self, peer: MemberState, seq: int, keys: int) -> None:
        """Pings `peer`, with what we are, and what we think of it when that is not the best, so that it can refute at
        once."""
        digest = self._membership.members.digest
        frames: list[Frame] = [Ping(seq=seq, to=peer.node, at=self.wall_ms(), view=digest, keys=keys), self._own()]
        self.post(peer.address, *frames, *self._reproach(peer))

    def ack(self, address: str, seq: int, keys: int, peer: MemberState | None, *, current: bool) -> None:
        """`peer` is what is known of who asked, `current` whether it is the process that is known."""
        me, digest = self._membership.me.node, self._membership.members.digest
        ack = Ack(seq=seq, of=me, at=self.wall_ms(), view=digest, keys=keys)
        own = [] if current else [self._own()]
        self.post(address, ack, *own, *(self._reproach(peer, current) if peer is not None else ()))

    def nack(self, relay: Relay) -> None:
        self.post(relay.address, Nack(seq=relay.seq))

    def note(self, to: MemberState, message: bytes) -> None:
        self._fill(to.address, encode(Note(body=message)))

    def full_state(self, address: str, *first: Frame, now: float) -> None:
        """Sends what is believed of all members, in as many datagrams as it takes, 256 at most, this node itself at the
        front."""
        peers = [self._membership.me, *(peer for peer in self._membership.members if peer is not self._membership.me)]
        frames: Iterable[bytes] = [*map(encode, first), *(encode(peer.claim(now)) for peer in peers)]
        for payload in batches(frames, PAYLOAD_BYTES)[:_SYNC_DATAGRAMS]:
            self._out.send(address, payload)

    def _fill(self, address: str, payload: bytes) -> None:
        broadcasts = self._broadcasts.take(PAYLOAD_BYTES - len(payload), self._transmits())
        self._out.send(address, b"".join((payload, *broadcasts)))

    def _transmits(self) -> int:
        return self._timing.transmits(self._membership.members.living)

    def _own(self) -> MemberClaim:
        return self._membership.me.claim(0.0)

    def _reproach(self, peer: MemberState, current: bool = True) -> tuple[MemberClaim, ...]:
        return () if peer.fate is Fate.ALIVE and current else (peer.claim(peer.changed_at),)
