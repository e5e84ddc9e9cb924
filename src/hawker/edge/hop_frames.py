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
"""The most bytes of a question or an answer."""
FIRST_BYTES = 3072
"""The most bytes that come with a question."""
HEAD = struct.Struct(">BI")
"""The head of a frame: its kind, and how many bytes follow."""


class HopFrame(IntEnum):
    QUESTION = 1
    ANSWER = 2
    DATA = 3
    END = 4
    """The sender sends no more data; it still hears."""
    CLOSE = 5
    """The sender hears no more, either. The other side says the same, and the conversation is over."""
    REST = 6
    """The conversation with a gate that keeps is over: the sender has heard so many bytes (8 bytes, big-endian), and
    wants no more."""


class HopQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question for a gate: whether a request may enter this service of this machine. `hold_s`: so many seconds may
    the gate hold it and start the machine; 0 is now or not at all. `lasting`: it has no end of its own, so a stop of
    the machine does not wait for it. `datagrams`: it is for no machine; each flow in the conversation asks by
    itself."""

    app: AppName
    machine: MachineId
    service: int
    """The service's place in the machine's config, from 0."""
    hold_s: float = 0.0
    lasting: bool = False
    datagrams: bool = False
    port: int = 0
    """The app's port; not 0: the question comes from another region and names no machine. The asked host chooses one of
    the machines of its region that have this port, never one of another region."""
    inside: bool = False
    """With `port`: the request is a replay, which reaches services that no client outside does."""
    spoken: str = ""
    """With `port`: the handlers of the port, as the edge speaks to client and machine."""
    force: str = ""
    """With `port`: the id of the only machine that may have the request; empty for any."""
    prefer: str = ""
    """With `port`: the id of the machine that is to have the request if it can."""
    apart: tuple[MachineId, ...] = ()
    """With `port`: the ids of machines that may not have the request."""
    first: bytes = b""
    """The bytes for a gate that keeps, which go into the machine at once, up to `FIRST_BYTES`. They may be lost, or
    sent again, so they are a request that can be repeated; and it has an answer, with which the gate's own may come."""


class HopAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a gate. `code` is of `Code` where the request was not let in, and `why` what the app's log may say
    of it. `machine` is the machine that was chosen, where the question named none."""

    let_in: bool
    """Whether the connection leads into the machine from here on."""
    code: str = ""
    why: str = ""
    machine: MachineId | None = None
    keeps: bool = False
    """Whether the gate knows `first` and `REST`."""
    rested: bool = False
    """Whether the machine's connection was used before: the machine may be closing it just now."""


def frame(kind: HopFrame, data: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(data)) + data


def word(kind: HopFrame, message: HopQuestion | HopAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    assert len(data) <= MAX_WORD_BYTES, "questions and answers are short"
    return frame(kind, data)


def read_word(data: bytes, kind: type[M]) -> M:
    """The question or answer in the bytes. Raises `ValueError`."""
    return msgspec.msgpack.decode(data, type=kind)
