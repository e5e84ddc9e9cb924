"""Answers that are packed on their way to a client that can unpack them. Pure.

Packed is text of 1 KiB or more, or of a length that nobody knows, and nothing that was packed already, that is a part
of something, or that must reach the client as it is. What comes goes on at once: the packer waits for nothing.
"""

import re
import zlib
from collections.abc import Iterable
from typing import Protocol

import zstandard
from msgspec.structs import replace

from hawker.edge.head import Field, ResponseHead

LEAST_BYTES = 1 << 10
_GZIP_LEVEL, _ZSTD_LEVEL = 5, 3
_ZSTD_WINDOW_LOG = 20
"""The window of zstd as a power of two: a client must hold 1 MiB to unpack; RFC 9659 lets it refuse more than eight."""
_TEXT = re.compile(
    rb"text/(?!event-stream\b)|application/(?:(?:[\w.-]+\+)?(?:json|xml)|javascript|x-javascript|wasm|x-ndjson)\b"
    rb"|image/(?:svg\+xml|bmp|x-icon|vnd\.microsoft\.icon)\b|font/(?:ttf|otf)\b",
    re.IGNORECASE,
)
_WHOLE = frozenset({200, 201, 202, 203, 400, 401, 403, 404, 405, 409, 410, 422, 500, 502, 503})
_KEPT_AS_IT_IS = re.compile(rb"\bno-transform\b", re.IGNORECASE)
_OFFER = re.compile(r"\s*([\w*-]+)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?")


class Packer(Protocol):
    def pack(self, content: bytes) -> bytes:
        """Pack all of the content, so that the client can unpack it at once."""

    def end(self) -> bytes: ...


class GzipPacker:
    def __init__(self) -> None:
        self._packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 31)

    def pack(self, content: bytes) -> bytes:
        return self._packer.compress(content) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._packer.flush(zlib.Z_FINISH)


class ZstdPacker:
    def __init__(self) -> None:
        params = zstandard.ZstdCompressionParameters.from_level(_ZSTD_LEVEL, window_log=_ZSTD_WINDOW_LOG)
        self._packer = zstandard.ZstdCompressor(compression_params=params).compressobj()

    def pack(self, content: bytes) -> bytes:
        return self._packer.compress(content) + self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


_PACKERS: dict[str, type[GzipPacker] | type[ZstdPacker]] = {"zstd": ZstdPacker, "gzip": GzipPacker}
"""The packers by coding; of codings that the client wants equally the first is taken."""


def packed(answer: ResponseHead, asked: Iterable[Field]) -> tuple[ResponseHead, Packer | None]:
    """The head of the packed answer, and its packer; None where the answer goes as it is. `asked` are the request's
    fields."""
    if answer.bodiless or answer.status not in _WHOLE or not _may_be(answer):
        return answer, None
    coding = wanted([value for name, value in asked if name == b"accept-encoding"])
    if coding is None:
        return answer, None
    fields = [_weakened(field) for field in answer.fields if field[0] != b"accept-ranges"]
    fields += ((b"content-encoding", coding.encode()), (b"vary", b"accept-encoding"))
    return replace(answer, fields=tuple(fields), length=None, chunked=True), _PACKERS[coding]()


def wanted(accepted: list[bytes]) -> str | None:
    """The coding of ours that a client wants most; None when it wants none of them."""
    weights: dict[str, float] = {}
    for part in b",".join(accepted).decode("latin-1").split(",")[:32]:
        match = _OFFER.fullmatch(part)
        if match is not None:
            weights[match[1].lower()] = float(match[2]) if match[2] is not None else 1.0
    found = [(weights.get(name, weights.get("*", 0.0)), name) for name in _PACKERS]
    best = max(found, key=lambda each: each[0])
    return best[1] if best[0] > 0 else None


def _may_be(answer: ResponseHead) -> bool:
    given: dict[bytes, bytes] = {}
    for name, value in answer.fields:
        given[name] = given[name] + b"," + value if name in given else value
    if answer.length is not None and answer.length < LEAST_BYTES:
        return False
    if b"content-encoding" in given or b"content-range" in given:
        return False
    if _KEPT_AS_IT_IS.search(given.get(b"cache-control", b"")):
        return False
    return _TEXT.match(given.get(b"content-type", b"")) is not None


def _weakened(field: Field) -> Field:
    """The bytes are others than those that a strong tag stands for."""
    name, value = field
    return (name, b"W/" + value) if name == b"etag" and value.startswith(b'"') else field
