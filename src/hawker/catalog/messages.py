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
    """One pushed transaction. `origin`, `epoch` (from 1) and `version` (from 1) name it without reading `body`, so that
    a duplicate costs no decoding."""

    hop: int
    """Nodes that it went through, 0 from its owner. Beyond `fan_out.MAX_HOPS` it is not passed on."""
    origin: NodeId
    epoch: int
    version: int
    body: bytes
    """The transaction as MessagePack, passed on byte for byte; up to `replication.PUSH_BYTES`, longer ones are
    announced by `Ihave`."""


class Push(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """New transactions of any origins, in the order in which the sender has them. No answer."""

    scope: Scope
    rumors: tuple[Rumor, ...]
    """The transactions, at most `fan_out.DATAGRAM_BYTES` together, or a single longer one."""


class Head(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The place of the sender in the stream of `origin`: it has all versions up to `version` (0 or more) of `epoch`."""

    origin: NodeId
    epoch: int
    version: int


class Ihave(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Announces transactions instead of pushing them: those that came lately, and those too long to push. A receiver
    that lacks one asks with `Pull`."""

    scope: Scope
    heads: tuple[Head, ...]
    """The sender's place in each stream that it names, at most `replication.IHAVE_HEADS` of them."""


class Want(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The place of the sender in a stream of which it wants more."""

    origin: NodeId
    epoch: int
    """The epoch that the sender has; an answer of another epoch is a reset. 0 for a stream never heard of."""
    after: int
    """The last version that it has: it wants what comes after. -1 when only a reset helps; in the middle of a reset,
    the version that the last part came to."""
    since: int = -1
    """The `head` of the first part of the reset under way, so that the answerer goes on with it; -1 for none."""


class Pull(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Asks for what is missing. Sent as a message it is answered by `Txs`, `DeltaPart` or `Bulk`; asked over a stream,
    by `PullAnswer`."""

    scope: Scope
    wants: tuple[Want, ...]
    """Streams that cannot be continued from `Want.after` are answered with a reset; unknown ones not at all."""
    max_bytes: int
    """Bytes of the answer before compression. The answerer has a bound of its own and uses the lower one."""


class Txs(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Answers a `Pull` from the log."""

    txs: tuple[ReplicatedTx, ...]
    """Unchanged transactions, contiguous per stream, all of one scope."""


class DeltaPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Answers a `Pull` whose transactions the log no longer has."""

    delta: Delta
    """A delta that fits one message, so its last part; longer ones are announced by `Bulk`."""


class Bulk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Answers a `Pull` whose answer is too long for a message: the receiver should ask again over a stream."""

    scope: Scope
    heads: tuple[Head, ...]
    """The place of the sender in each stream that it did not send."""


class PullAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Answers a `Pull` over a stream."""

    txs: tuple[ReplicatedTx, ...]
    deltas: tuple[Delta, ...]
    more: bool
    """The byte bound cut the answer short: the same question, asked from where these lead to, has an answer again."""


class Digest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Opens a round of anti-entropy. Answered by `Vector` when a bucket differs, else not at all."""

    scope: Scope
    digest: bytes
    """The sender's version vector as `anti_entropy.BUCKETS` hashes of four bytes."""


class VectorEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One origin's entry of a version vector, as `change.Position` has it."""

    origin: NodeId
    epoch: int  # the epoch of the origin that the sender has, 1 or more; 0 for none
    applied: int
    """All versions up to this one are applied; -1 in the middle of a reset."""
    fence: int = -1
    """Epochs up to this one are ignored because the origin was forgotten; -1 for never. Fences only rise, so entries
    spread them."""

    @classmethod
    def of(cls, origin: NodeId, position: Position) -> "VectorEntry":
        return cls(origin=origin, epoch=position.epoch, applied=position.applied, fence=position.fence)


class Vector(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The entries of some buckets of the sender's version vector."""

    scope: Scope
    buckets: tuple[int, ...]
    """Numbers from 0 to `anti_entropy.BUCKETS - 1`: those in which the two digests differ."""
    entries: tuple[VectorEntry, ...]
    """All entries of these buckets."""
    back: bool
    """True asks the receiver for its own entries of the same buckets; the answer has False, so a round ends."""


class PositionQuery(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The question of a node that starts: how far does the receiver know the sender's own stream? Answered by
    `PositionAnswer`."""

    scope: Scope


class PositionAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The place to which the sender knows the receiver's stream. An entry beyond the receiver's own position, or a
    fence over its epoch, makes the receiver begin a new epoch."""

    scope: Scope
    entry: VectorEntry


class ForgetOrigin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An operator had `origin` forgotten: raise its fence in both scopes, drop its rows, pass this on."""

    origin: NodeId
    epoch: int
    """Epochs up to this one are ignored. Odd, since the global stream's epoch is the higher one of the two."""
    hop: int
    """Nodes that it went through, 0 from the node that was asked. Beyond `fan_out.MAX_HOPS` it is not passed on."""


class SnapshotAsk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The question, over a stream, for one file of all that the receiver has. Answered by `SnapshotMeta`."""

    scopes: tuple[Scope, ...]
    """The scopes that the file should hold; a node of another region asks for the global one only."""


class SnapshotMeta(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A snapshot file, kept for two minutes after it was last read."""

    number: int
    """Names the file at the sender, from 1."""
    size: int
    """Bytes, compressed; the receiver refuses more than `snapshots.MOST_BYTES`."""
    digest: str
    """SHA-256 of the whole file, hex. A file with another one is not installed."""


class SnapshotRead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The question, over a stream, for the next bytes of a file. Answered by `SnapshotPart`, `not found` when it was
    dropped."""

    number: int
    """The number of the file, as in `SnapshotMeta`."""
    offset: int
    """Bytes from the beginning, 0 or more; any offset may be read again."""


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The bytes that answer a `SnapshotRead`."""

    data: bytes
    """The bytes from that offset on, up to `snapshots.CHUNK_BYTES`; empty at the end of the file."""


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
    """The message of `raw`. Raises `ValueError` for bytes that are no message."""
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
    """A transaction as its owner first pushes it."""
    return Rumor(hop=0, origin=tx.origin, epoch=tx.epoch, version=tx.version, body=_ENCODER.encode(tx))


def passed_on(rumor: Rumor) -> Rumor:
    return Rumor(hop=rumor.hop + 1, origin=rumor.origin, epoch=rumor.epoch, version=rumor.version, body=rumor.body)


def tx_of(rumor: Rumor) -> ReplicatedTx:
    """The transaction of a rumor. Raises `ValueError` when the body is none, or is another one than the rumor names."""
    tx = _DECODE_TX(rumor.body)
    if (tx.origin, tx.epoch, tx.version) != (rumor.origin, rumor.epoch, rumor.version):
        raise ValueError("a rumor of another transaction")
    return tx


def size_of(change: ReplicatedTx | Delta) -> int:
    """The bytes of a change in a message before compression; in memory it takes about as many."""
    return len(_ENCODER.encode(change))
