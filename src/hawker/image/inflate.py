"""A layer's blob as a stream of unpacked bytes, with the brakes against decompression bombs."""

import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import zstandard
from isal import igzip
from isal.igzip_lib import IsalError

from hawker.image.limits import ImageLimits
from hawker.image.manifest import Compression

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
    """Reads of the source pass the brake."""

    def __init__(self, source: BinaryIO, brake: Brake) -> None:
        self._source = source
        self._brake = brake

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read(min(len(buffer), _BUFFER))
        self._brake.take(len(data))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def inflated(blob: Path, compression: Compression, brake: Brake) -> Iterator[BinaryIO]:
    """The unpacked bytes. Raises `InflateError`, also for damage found while the caller reads."""
    try:
        with blob.open("rb") as packed:
            yield io.BufferedReader(_Braked(_opened(packed, compression), brake), _BUFFER)
    except (EOFError, IsalError, gzip.BadGzipFile, zstandard.ZstdError) as error:  # type: ignore[misc]
        raise InflateError(f"is not intact {compression.value}: {error}") from error


def _opened(packed: BinaryIO, compression: Compression) -> BinaryIO:
    match compression:
        case Compression.GZIP:
            return cast(BinaryIO, igzip.IGzipFile(fileobj=packed, mode="rb"))  # type: ignore[no-untyped-call]
        case Compression.ZSTD:
            decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
            return decompressor.stream_reader(packed, read_across_frames=True, closefd=False)
        case Compression.NONE:
            return packed


def sniff(head: bytes) -> Compression:
    """By the first bytes."""
    return next((found for magic, found in _MAGICS if head.startswith(magic)), Compression.NONE)
