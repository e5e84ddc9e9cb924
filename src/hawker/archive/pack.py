"""Files under zstd, with the brakes against decompression bombs. `unzstd` reads what is written here."""

import os
from pathlib import Path
from typing import BinaryIO

import zstandard

from hawker.archive.failure import ArchiveDamaged

LEVEL = 9
WINDOW_BYTES = 8 << 20  # what `zstd -19` needs at the most; a reader's memory is a little more than this
_CHUNK = 1 << 20
_HEAD_BYTES = 18  # the largest head of a zstd frame


def compress(source: Path, target: Path) -> int:
    """Write `target` anew, on disk before it returns, readable by its owner only. Returns its size."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with source.open("rb") as raw, owned(target) as packed:
        compressor.copy_stream(raw, packed, size=source.stat().st_size)
        packed.flush()
        os.fsync(packed.fileno())
        return packed.tell()


def expand(source: Path, target: Path, most_bytes: int) -> None:
    """Write `target` anew. Raises `ArchiveDamaged` for what is not intact zstd or expands to more than `most_bytes`.
    What was cut short is known by the size that the head of the file says."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    with source.open("rb") as packed, owned(target) as raw:
        try:
            size = zstandard.get_frame_parameters(packed.read(_HEAD_BYTES)).content_size
            if size == zstandard.CONTENTSIZE_UNKNOWN:
                raise ArchiveDamaged("it does not say how much it expands to")
            if size > most_bytes:
                raise ArchiveDamaged(f"it expands to more than {most_bytes} bytes")
            packed.seek(0)
            for chunk in decompressor.read_to_iter(packed, read_size=_CHUNK, write_size=_CHUNK):
                raw.write(chunk)
                if raw.tell() > size:
                    break
        except zstandard.ZstdError as error:
            raise ArchiveDamaged(f"it is not intact zstd: {error}") from error
        if raw.tell() != size:
            raise ArchiveDamaged(f"it is cut short: {raw.tell()} of {size} bytes")


def owned(path: Path) -> BinaryIO:
    """A new file that only its owner can read: a machine's config has its secrets."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
