"""The catalog's messages as bytes: one byte that tells the kind, then MessagePack, compressed when that helps.

Messages of one scope name it. Fields are only ever added at the end, so that older and newer nodes read each other.
What cannot be read raises `ValueError`; what is read was bounded in size before.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import zstandard

from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope
from hawker.ids import NodeId

COMPRESS_ABOVE = 1024  # what is shorter fits a datagram as it is
MOST_BYTES = 80 << 20
_COMPRESSED = 0x80
_LEVEL = 1


class Rumor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A transaction on its way, and how many nodes it went through. The transaction itself is `body`: read only where
    it is news, and passed on as it came."""

    hop: int
    origin: NodeId
    epoch: int
    version: int
    body: bytes


class Push(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is new, of any origins, in the order in which the sender has it."""

    scope: Scope
    rumors: tuple[Rumor, ...]


class Head(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How far somebody is in a stream."""

    origin: NodeId
    epoch: int
    version: int


class Ihave(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What the sender has had for a short time, or has and thinks too long to push."""

    scope: Scope
    heads: tuple[Head, ...]


class Want(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where the sender is in a stream of which it wants more; `after` is -1 when only a reset helps. `since` goes with
    a reset that is under way, as in `Storage.delta`."""

    origin: NodeId
    epoch: int
    after: int
    since: int = -1


class Pull(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Asks for what is beyond. Answered by `Txs`, `DeltaPart` or `Bulk`; over a stream by `PullAnswer`."""

    scope: Scope
    wants: tuple[Want, ...]
    max_bytes: int


class Txs(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Transactions as they were, in their order."""

    txs: tuple[ReplicatedTx, ...]


class DeltaPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A delta that is whole: its last part."""

    delta: Delta


class Bulk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """There is more than a message holds: the receiver may ask for it over a stream."""

    scope: Scope
    heads: tuple[Head, ...]


class PullAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An answer over a stream. `more`: the same question, from where these lead to, has an answer again."""

    txs: tuple[ReplicatedTx, ...]
    deltas: tuple[Delta, ...]
    more: bool


class Digest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The sender's vector in short. Answered by `Vector` where it differs, else not at all."""

    scope: Scope
    digest: bytes


class VectorEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    origin: NodeId
    epoch: int
    applied: int
    fence: int = -1

    @classmethod
    def of(cls, origin: NodeId, position: Position) -> "VectorEntry":
        return cls(origin=origin, epoch=position.epoch, applied=position.applied, fence=position.fence)


class Vector(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All that the sender has in some buckets. `back`: it wants the receiver's in return."""

    scope: Scope
    buckets: tuple[int, ...]
    entries: tuple[VectorEntry, ...]
    back: bool


class PositionQuery(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """From a node that begins: what does the receiver know of it?"""

    scope: Scope


class PositionAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What the sender knows of the receiver."""

    scope: Scope
    entry: VectorEntry


class ForgetOrigin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An operator's word: `origin` is forgotten, up to `epoch`."""

    origin: NodeId
    epoch: int
    hop: int


class SnapshotAsk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Over a stream: all that the receiver has of these scopes, as one file. Answered by `SnapshotMeta`."""

    scopes: tuple[Scope, ...]


class SnapshotMeta(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A file that may be read for a while. `digest` is the SHA-256 of the whole, hex."""

    number: int
    size: int
    digest: str


class SnapshotRead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Over a stream. Answered by `SnapshotPart`."""

    number: int
    offset: int


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Some of the file, from that offset on; empty at its end."""

    data: bytes


OfSnapshot: TypeAlias = SnapshotAsk | SnapshotMeta | SnapshotRead | SnapshotPart
Message: TypeAlias = (
    Push
    | Ihave
    | Pull
    | Txs
    | DeltaPart
    | Bulk
    | PullAnswer
    | Digest
    | Vector
    | PositionQuery
    | PositionAnswer
    | ForgetOrigin
    | OfSnapshot
)

_KINDS: Sequence[type[Message]] = (
    Push,
    Ihave,
    Pull,
    Txs,
    DeltaPart,
    Bulk,
    PullAnswer,
    Digest,
    Vector,
    PositionQuery,
    PositionAnswer,
    ForgetOrigin,
    SnapshotAsk,
    SnapshotMeta,
    SnapshotRead,
    SnapshotPart,
)
_NUMBER: Mapping[type[Message], int] = {kind: number for number, kind in enumerate(_KINDS, 1)}
_ENCODER = msgspec.msgpack.Encoder()
_DECODE: Mapping[int, Callable[[bytes], Any]] = {
    number: msgspec.msgpack.Decoder(kind).decode for kind, number in _NUMBER.items()
}


_DECODE_TX = msgspec.msgpack.Decoder(ReplicatedTx).decode


class _Zstd(threading.local):
    """Made once a thread: neither can be used by two at the same time, and to make one costs more than a message."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_ZSTD = _Zstd()


def encode(message: Message) -> bytes:
    body = _ENCODER.encode(message)
    kind = _NUMBER[type(message)]
    if len(body) > COMPRESS_ABOVE:
        packed = _ZSTD.compressor.compress(body)
        if len(packed) < len(body):
            return bytes((kind | _COMPRESSED,)) + packed
    return bytes((kind,)) + body


def decode(raw: bytes) -> Message:
    """Raises `ValueError` for what is no message."""
    if not raw:
        raise ValueError("an empty message")
    decoder = _DECODE.get(raw[0] & ~_COMPRESSED)
    if decoder is None:
        raise ValueError(f"a message of unknown kind {raw[0] & ~_COMPRESSED}")
    body = _unpack(raw[1:]) if raw[0] & _COMPRESSED else raw[1:]
    message: Message = decoder(body)
    return message


def _unpack(packed: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= MOST_BYTES:
            raise ValueError(f"a message that would unpack to {size} bytes")
        return _ZSTD.decompressor.decompress(packed, max_output_size=MOST_BYTES)
    except zstandard.ZstdError as error:
        raise ValueError(f"a message that does not unpack: {error}") from error


def rumor_of(tx: ReplicatedTx) -> Rumor:
    """Where it begins."""
    return Rumor(hop=0, origin=tx.origin, epoch=tx.epoch, version=tx.version, body=_ENCODER.encode(tx))


def passed_on(rumor: Rumor) -> Rumor:
    return Rumor(hop=rumor.hop + 1, origin=rumor.origin, epoch=rumor.epoch, version=rumor.version, body=rumor.body)


def tx_of(rumor: Rumor) -> ReplicatedTx:
    """Raises `ValueError` for what is no transaction, or another one than was said."""
    tx = _DECODE_TX(rumor.body)
    if (tx.origin, tx.epoch, tx.version) != (rumor.origin, rumor.epoch, rumor.version):
        raise ValueError("a rumor of another transaction")
    return tx


def size_of(change: ReplicatedTx | Delta) -> int:
    """What it takes in a message before compression, and about what in memory."""
    return len(_ENCODER.encode(change))
