"""What a pilot leaves on the host, as its bytes."""

import struct
import zlib

from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot import frames

STAMP = frames.number(1_000_000_000, 8)


def output_record(position: int, data: bytes, stream: int = 1, unix_ns: int = 5_000_000_000, process: int = 0) -> bytes:
    return _checked(struct.pack("<IQQBBxx", len(data), position, unix_ns, stream, process) + data)


def ring(*records: tuple[int, bytes]) -> bytes:
    return b"".join(output_record(position, data) for position, data in records)


def said(chunks: list[OutputChunk]) -> list[bytes]:
    return [chunk.data for chunk in chunks]


def journal_record(kind: int, payload: bytes) -> bytes:
    return _checked(struct.pack("<HBx", len(payload), kind) + payload)


def ending(code: int, *, at_ns: int = 9_000_000_000, signal: int = 0, process: int = 0, reason: bytes = b"") -> bytes:
    head = frames.number(at_ns, 8) + frames.number(code, 4) + frames.number(signal, 4) + frames.number(process, 1)
    return head + frames.blob(reason) + b"\0"


def began(run: int, process: int = 1, stamp: bytes = STAMP) -> bytes:
    return journal_record(6, stamp + bytes([process]) + frames.number(run, 4) + frames.number(50 + run, 4))


def ended(run: int, code: int, process: int = 1, more: bytes = b"") -> bytes:
    return journal_record(7, frames.number(run, 4) + ending(code, process=process) + more)


def _checked(body: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(body)) + body
