"""What is inside a datagram: frames of one type each, `type u8, length u16, MessagePack array`.

Newer peers may add frame types (passed over) and fields at the end (ignored). Everything else that does not fit is
`MalformedFrame`: what cannot be read is never guessed. Sizes are bounded here, once.
"""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

import msgspec

from hawker.gossip.contract import Fate
from hawker.ids import NodeId

U32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
U63: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Node: TypeAlias = Annotated[NodeId, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
Address: TypeAlias = Annotated[str, msgspec.Meta(min_length=3, max_length=128)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=300)]
Key: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]

META_BYTES = 900
FRAME_BYTES = 1150
_HEAD = 3
_NOTE = 14


class MalformedFrame(ValueError):
    """Bytes that are no sequence of frames."""


class Ping(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`to` guards against a port that somebody else has now. `at` is the sender's wall time in milliseconds, `view` the
    digest of all it believes, `keys` the version of its keyring."""

    seq: U32
    to: Node
    at: U63 = 0
    view: U63 = 0
    keys: U63 = 0


class Ack(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`of` is who answered: an ack may come by way of a third."""

    seq: U32
    of: Node
    at: U63 = 0
    view: U63 = 0
    keys: U63 = 0


class PingReq(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Ping `to` for me, and tell me."""

    seq: U32
    to: Node
    address: Address


class Nack(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """I hear you, but nothing of whom you asked for: so your own link is well."""

    seq: U32


class MemberClaim(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """MEMBER: what is said of one. `boot` tells its processes apart, `meta` is the fingerprint of its meta, `by` is who
    accuses a suspect, `age_s` how long ago a member that is down or left came to be so."""

    node: Node
    address: Address
    incarnation: U63
    fate: Fate
    epoch: U63 = 0
    boot: U63 = 0
    meta: U63 = 0
    by: str = ""
    age_s: U63 = 0


class MetaReq(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    node: Node


class MetaIs(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """META: as its owner wrote it, since the fingerprint is over these bytes."""

    node: Node
    content: Annotated[bytes, msgspec.Meta(max_length=META_BYTES)]


class Join(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The sender's own claim comes in a frame of its own."""

    cluster: Text


class JoinOk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`known` is what was believed of the joining node before it asked."""

    cluster: Text
    known: MemberClaim | None = None


class JoinRefused(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`code` is `cluster` or `twin`; the text is for a person."""

    code: Text
    text: Text


class ForgetNode(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An operator's word: what this node says in epochs up to `fence` is ignored."""

    node: Node
    fence: U63
    at: U63 = 0


class KeyringIs(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The whole keyring, which only ever goes on by one step a version."""

    version: U63
    primary: Annotated[int, msgspec.Meta(ge=0, le=255)]
    keys: Annotated[dict[int, Key], msgspec.Meta(min_length=1, max_length=4)]


class Sync(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All that I believe follows in claims; `want` asks for the same."""

    want: bool = False


class Note(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message of whoever uses gossip; its bytes are the frame's body."""

    body: bytes
    """The bytes of the note, at most what fits into one datagram."""


Frame: TypeAlias = (
    Ping
    | Ack
    | PingReq
    | Nack
    | MemberClaim
    | MetaReq
    | MetaIs
    | Join
    | JoinOk
    | JoinRefused
    | ForgetNode
    | KeyringIs
    | Sync
    | Note
)

_TYPES: dict[int, type[Frame]] = {
    1: Ping,
    2: Ack,
    3: PingReq,
    4: Nack,
    5: MemberClaim,
    6: MetaReq,
    7: MetaIs,
    8: Join,
    9: JoinOk,
    10: JoinRefused,
    11: ForgetNode,
    12: KeyringIs,
    13: Sync,
}
_NUMBERS = {kind: number for number, kind in _TYPES.items()}
_DECODERS = {number: msgspec.msgpack.Decoder(kind) for number, kind in _TYPES.items()}
_ENCODER = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    if isinstance(frame, Note):
        return _framed(_NOTE, frame.body)
    return _framed(_NUMBERS[type(frame)], _ENCODER.encode(frame))


def decode(payload: bytes) -> list[Frame]:
    """The frames of a payload. Raises `MalformedFrame`."""
    frames: list[Frame] = []
    at, end = 0, len(payload)
    while at < end:
        body_at = at + _HEAD
        if body_at > end:
            raise MalformedFrame("a frame's head is cut off")
        number, length = payload[at], int.from_bytes(payload[at + 1 : body_at], "big")
        at = body_at + length
        if at > end:
            raise MalformedFrame("a frame is cut off")
        frame = _read(number, payload[body_at:at])
        if frame is not None:
            frames.append(frame)
    return frames


def payload_of(*frames: Frame) -> bytes:
    return b"".join(map(encode, frames))


def batches(encoded: Iterable[bytes], room: int) -> list[bytes]:
    """The frames in as few payloads of at most `room` bytes as their order allows."""
    batch: list[bytes] = []
    filled: list[bytes] = []
    size = 0
    for frame in encoded:
        if batch and size + len(frame) > room:
            filled.append(b"".join(batch))
            batch, size = [], 0
        batch.append(frame)
        size += len(frame)
    return [*filled, b"".join(batch)] if batch else filled


def _framed(number: int, body: bytes) -> bytes:
    assert len(body) <= FRAME_BYTES, f"a frame of {len(body)} bytes fits no datagram"
    return bytes((number, len(body) >> 8, len(body) & 255)) + body


def _read(number: int, body: bytes) -> Frame | None:
    if number == _NOTE:
        return Note(body=body)
    decoder = _DECODERS.get(number)
    if decoder is None:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(f"frame of type {number}: {error}") from error
