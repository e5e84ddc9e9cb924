"""A layer's blob as a stream of unpacked bytes, with the brakes against decompression bombs."""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import zstandard
from isal import igzip_threaded
from isal.igzip_lib import IsalError

from hawker.image.blobs import ArrivingBlob
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Compression
from hawker.image.source import open_regular

_BUFFER = 1 << 18
_ZSTD_WINDOW = 1 << 27  # what `zstd --long` writes
_MAGICS = ((b"\x1f\x8b", Compression.GZIP), (b"\x28\xb5\x2f\xfd", Compression.ZSTD))


class InflateError(ValueError):
    """The blob is not what its media type says, is damaged, or unpacks to more than is allowed."""


class Brake:
    """Counts what comes out of one blob against what is allowed. `check` is called now and then, to give up early."""

    def __init__(self, packed: int, most: int, limits: ImageLimits, check: Callable[[], None]) -> None:
        self._most = most
        self._fair = limits.ratio_free_bytes + limits.max_ratio * packed
        self._check = check
        self.unpacked = 0

    def take(self, count: int) -> None:
        """Count what was unpacked. Raises `InflateError` above the limits."""
        self._check()
        self.unpacked += count
        if self.unpacked > self._most:
            raise InflateError(f"unpacks to more than {self._most} bytes")
        if self.unpacked > self._fair:
            raise InflateError(f"unpacks to {self.unpacked} bytes, out of all proportion: a decompression bomb")


class _Braked(io.RawIOBase):
    """Reads of the source pass the brake; `moved` hears where in the packed bytes they have come to."""

    def __init__(self, source: BinaryIO, brake: Brake, packed: BinaryIO, moved: Callable[[int], None]) -> None:
        self._source = source
        self._brake = brake
        self._packed = packed
        self._moved = moved

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._source.readinto(memoryview(buffer)[:_BUFFER])  # type: ignore[attr-defined]  # all three have it
        self._brake.take(count)
        self._moved(self._packed.tell())
        return int(count)


@contextmanager
def inflated(
    blob: Path | ArrivingBlob, compression: Compression, brake: Brake, moved: Callable[[int], None] = lambda at: None
) -> Iterator[BinaryIO]:
    """The unpacked bytes; `moved` is called with how many packed ones were read. Raises `InflateError`, also for damage
    found while the caller reads, and `BlobLost` for a blob that arrives no more."""
    try:
        with _packed(blob) as packed, closing(_opened(packed, compression)) as source:
            yield io.BufferedReader(_Braked(source, brake, packed, moved), _BUFFER)
    except (EOFError, IsalError, gzip.BadGzipFile, zstandard.ZstdError) as error:  # type: ignore[misc]
        raise InflateError(f"is not intact {compression.value}: {error}") from error


def _packed(blob: Path | ArrivingBlob) -> BinaryIO:
    return cast(BinaryIO, blob.open()) if isinstance(blob, ArrivingBlob) else os.fdopen(open_regular(blob), "rb")


def _opened(packed: BinaryIO, compression: Compression) -> BinaryIO:
    """A thread inflates gzip, which is most of the work, beside whoever reads: at most some MiB ahead. It ends when the
    result is closed."""
    match compression:
        case Compression.GZIP:
            return cast(BinaryIO, igzip_threaded.open(packed, "rb"))  # type: ignore[no-untyped-call]
        case Compression.ZSTD:
            decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
            return decompressor.stream_reader(packed, read_across_frames=True, closefd=False)
        case Compression.NONE:
            return packed


def sniff(head: bytes) -> Compression:
    """The compression of bytes that begin with `head`."""
    return next((found for magic, found in _MAGICS if head.startswith(magic)), Compression.NONE)
