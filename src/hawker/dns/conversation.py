"""Questions over TCP (RFC 1035, 4.2.2), one after the other: those of a network's machines, and those about the zone.
Whoever asks has a place for as long as a socket: one that reads no answer keeps neither.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from hawker.errors import OverShare
from hawker.fair.turns import Turns

QUESTION_BYTES = 4096
_LENGTH = struct.Struct("!H")
_LINGER_NOTHING = struct.pack("ii", 1, 0)


async def converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    places: Turns,
    key: str,
    within_s: float,
    answer: Callable[[bytes], Awaitable[bytes | None]],
) -> None:
    """Answer questions over one connection, one after the other, in a place of `key`; without a free place none is
    answered. The connection ends with a question that gets no answer, and with a question that has not come, or an
    answer that is not taken, `within_s` seconds."""
    writer.transport.set_write_buffer_limits(0)  # an answer counts as taken once the kernel has all of it
    try:
        with suppress(OverShare, OSError, EOFError, TimeoutError), places.hold_now(key):
            while await asyncio.wait_for(_answer(reader, writer, answer), within_s):
                pass
    finally:
        _close(writer)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[bytes], Awaitable[bytes | None]]
) -> bool:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not 0 < length <= QUESTION_BYTES:
        return False
    found = await answer(await reader.readexactly(length))
    if found is None:
        return False
    writer.write(_LENGTH.pack(len(found)) + found)
    await writer.drain()
    return True


def _close(writer: asyncio.StreamWriter) -> None:
    """At once, also where an answer was not taken: to send it first would take as long as the other end likes."""
    if writer.transport.get_write_buffer_size() and not writer.transport.is_closing():
        with suppress(OSError):  # it has ended already
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
        writer.transport.abort()
    else:
        writer.close()
