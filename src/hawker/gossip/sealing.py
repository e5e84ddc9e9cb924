"""Datagrams, sealed: `magic 1, flags 1, key 1, reserved 1, sender 8, boot 8, counter 8`, AES-256-GCM, tag 16.

Each process of each node has a key of its own, so a counter is nonce enough; random nonces under one shared key would
run out (docs/gossip.md). The header is authenticated with the content, which begins with the cluster's mark.
"""

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.clock import Clock
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId
from hawker.value_object import ValueObject

WINDOW_COUNTERS = 1024


class ReplayWindow:
    """One sender's counters since it booted."""

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
"""What is left for frames."""

_SENDERS = 4096
_BOOT_BITS = 63


class Opened(ValueObject, frozen=True):
    """What an authentic datagram holds. `foreign`: its sender has our key and yet belongs to another cluster."""

    sender: NodeId
    boot: int
    payload: bytes
    foreign: bool


def new_boot(clock: Clock) -> int:
    """Names one life of a process: Unix seconds, then 31 random bits; later ones are greater where clocks are right."""
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
        """None for whatever is not authentic, or was here before."""
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
