"""The frames that edges of two hosts send each other, and the words in them: who asks for which machine, and what its
gate says. Nodes of two versions read each other's: what is not known is passed over, and what is not there has its
default.
"""

import struct
from enum import IntEnum
from typing import TypeVar

import msgspec

from hawker.ids import AppName, MachineId

M = TypeVar("M")

MAX_WORD_BYTES = 4096
"""Of a question or an answer."""
FIRST_BYTES = 3072
"""Of what comes with a question."""
HEAD = struct.Struct(">BI")
"""Of a frame: its kind, and how many bytes follow."""


class HopFrame(IntEnum):
    QUESTION = 1
    ANSWER = 2
    DATA = 3
    END = 4
    """The sender has said its last; it goes on hearing."""
    CLOSE = 5
    """It hears no more, either. The other side says the same, and the conversation is over."""
    REST = 6
    """To a gate that keeps: it is over. So many bytes were heard (8 bytes, big-endian), and no more are wanted."""


class HopQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Into which service of which machine. `hold_s`: so long may the gate hold it and start the machine; 0 is now or
    not at all. `lasting`: it has no end of its own, so a stop of the machine does not wait for it. `datagrams`: into no
    machine; each flow in the conversation asks by itself."""

    app: AppName
    machine: MachineId
    service: int
    """Its place in the machine's config, from 0."""
    hold_s: float = 0.0
    lasting: bool = False
    datagrams: bool = False
    port: int = 0
    """Not 0: it comes from another region and names no machine. Into one of those of this region that have the app's
    port, which the asked host chooses: never into another region."""
    inside: bool = False
    """With `port`: a replay, which reaches services that nobody outside does."""
    spoken: str = ""
    """With `port`: its handlers, as the edge speaks to client and machine."""
    force: str = ""
    """With `port`: this machine's id or nobody; empty for any."""
    prefer: str = ""
    """With `port`: the id of the machine that is to have it if it can."""
    apart: tuple[MachineId, ...] = ()
    """With `port`: none of these."""
    first: bytes = b""
    """To a gate that keeps: what goes into the machine at once, up to `FIRST_BYTES`. It may be lost, or sent again, so
    it is a request that can be repeated; and it has an answer, with which the gate's own may come."""


class HopAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`code` is of `Code` where it was not let in, and `why` what the app's log may say of it. `machine` is the one
    that was chosen, where the question named none."""

    let_in: bool
    """The connection leads into the machine from here on."""
    code: str = ""
    why: str = ""
    machine: MachineId | None = None
    keeps: bool = False
    """The gate knows `first` and `REST`."""
    rested: bool = False
    """The machine's connection was used before: the machine may be closing it just now."""


def frame(kind: HopFrame, data: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(data)) + data


def word(kind: HopFrame, message: HopQuestion | HopAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    assert len(data) <= MAX_WORD_BYTES, "questions and answers are short"
    return frame(kind, data)


def read_word(data: bytes, kind: type[M]) -> M:
    """Raises `ValueError`."""
    return msgspec.msgpack.decode(data, type=kind)
