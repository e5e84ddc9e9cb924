"""Encrypted streams: two hellos, then sealed records of at most 1 MiB, which make messages of up to 64 MiB. Pure.

Each connection has keys of its own, one a direction, of the cluster's key and both hellos; so nothing of another
connection can be repeated in it, and records count from 0. `length 4, sealed`; the length is authenticated too.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId

RECORD_BYTES = 1 << 20
MESSAGE_BYTES = 64 << 20
LENGTH_BYTES = 4
TAG_BYTES = 16
MAGIC = 0xC2
NONCE_BYTES = 16
_HELLO = struct.Struct(">BBBx8sQ16s")
HELLO_BYTES = _HELLO.size
_OPENING = struct.Struct(">BII")
_MOST_MS = (1 << 32) - 1


class BrokenStream(ValueError):
    """The bytes are no stream of this cluster: not authentic, too long, or out of order."""


class MessageKind(IntEnum):
    NOTE = 1  # a message; the answer only says that it came
    ASK = 2
    ANSWER = 3
    FAILURE = 4  # instead of an answer; the text says why
    PING = 5  # are you there


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHello:
    """`key` is the number of the key that the caller seals with; the answer's is the same."""

    node: NodeId
    boot: int
    key: int
    nonce: bytes

    def encoded(self) -> bytes:
        return _HELLO.pack(MAGIC, 1, self.key, self.node.encode(), self.boot, self.nonce)


def hello_of(data: bytes) -> StreamHello:
    """Raises `BrokenStream`."""
    magic, _, key, name, boot, nonce = _HELLO.unpack(data)
    if magic != MAGIC or not all(byte in b"0123456789abcdef" for byte in name):
        raise BrokenStream("no hello of a node")
    return StreamHello(node=NodeId(name.decode()), boot=boot, key=key, nonce=nonce)


class SecureStream:
    """One end of a connection after the hellos."""

    def __init__(
        self, keyring: GossipKeyring, cluster: str, *, caller: StreamHello, answerer: StreamHello, calling: bool
    ) -> None:
        key = keyring.keys.get(caller.key)
        if key is None or caller.key != answerer.key:
            raise BrokenStream(f"no key {caller.key} in the keyring")
        info = b"cp1 stream" + hashlib.sha256(caller.encoded() + answerer.encoded() + cluster.encode()).digest()
        keys = HKDF(algorithm=SHA256(), length=64, salt=None, info=info).derive(key)
        there, back = AESGCM(keys[:32]), AESGCM(keys[32:])
        self._out, self._in = (there, back) if calling else (back, there)
        self._sent = self._received = 0

    def seal(self, record: bytes) -> bytes:
        assert len(record) <= RECORD_BYTES
        length = (len(record) + TAG_BYTES).to_bytes(LENGTH_BYTES, "big")
        sealed = self._out.encrypt(self._sent.to_bytes(12, "big"), record, length)
        self._sent += 1
        return length + sealed

    def open(self, length: bytes, sealed: bytes) -> bytes:
        """Raises `BrokenStream`."""
        try:
            record = self._in.decrypt(self._received.to_bytes(12, "big"), sealed, length)
        except InvalidTag as error:
            raise BrokenStream("a record that was not sealed for this connection") from error
        self._received += 1
        return record


def length_of(head: bytes) -> int:
    """How many bytes follow. Raises `BrokenStream` for more than a record may have, before any is read."""
    length = int.from_bytes(head, "big")
    if not TAG_BYTES < length <= RECORD_BYTES + TAG_BYTES:
        raise BrokenStream(f"a record of {length} bytes")
    return length


@dataclass(frozen=True, slots=True)
class MessageHead:
    """How a message begins: `size` bytes in all, `part` of them here, answered within `within_s`."""

    kind: MessageKind
    size: int
    within_s: float
    part: bytes


def head_of(record: bytes, most: int = MESSAGE_BYTES) -> MessageHead:
    """Raises `BrokenStream`."""
    if len(record) < _OPENING.size:
        raise BrokenStream("a message without a beginning")
    number, size, within_ms = _OPENING.unpack_from(record)
    part = record[_OPENING.size :]
    if number not in MessageKind.__members__.values() or size > most or len(part) > size:
        raise BrokenStream(f"a message of kind {number} and {size} bytes")
    return MessageHead(MessageKind(number), size, within_ms / 1000, part)


def records_of(kind: MessageKind, message: bytes, within_s: float = 0.0) -> Iterator[bytes]:
    """The message in parts, each a record to seal."""
    opening = _OPENING.pack(kind, len(message), min(_MOST_MS, int(within_s * 1000)))
    first = RECORD_BYTES - len(opening)
    yield opening + message[:first]
    for at in range(first, len(message), RECORD_BYTES):
        yield message[at : at + RECORD_BYTES]
