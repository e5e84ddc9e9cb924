"""Where an image's content comes from: the contract that registries, layouts, archives and the sample image keep, and a
source whose content is on this node already, in memory or in a part of a file.
"""

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.value_object import ValueObject


class Stored(ValueObject, frozen=True):
    """A manifest or index as its source has it. `media_type` may be empty."""

    content: bytes
    """Byte for byte: digests are of these bytes."""
    media_type: str = ""


class Piece(ValueObject, frozen=True):
    """Bytes of a blob from `offset` on, which is the one asked for or 0."""

    offset: int
    chunks: AsyncIterator[bytes]


class ImageSource(Protocol):
    """A source of images. Nothing that comes from here is trusted: callers check digests and sizes. May raise
    `TryLater`."""

    async def manifest(self, digest: Digest | None) -> Stored:
        """The manifest of that digest, or the one that the reference names."""

    def blob(self, blob: Layer, offset: int) -> AbstractAsyncContextManager[Piece]: ...


_CHUNK = 1 << 20


def open_regular(path: Path) -> int:
    """A descriptor for reading. Raises `OSError`, also for what is no regular file: a pipe would wait for its writer
    for ever, and a device may do something when it is opened."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        raise OSError(errno.EINVAL, "not a regular file")
    except OSError:
        os.close(fd)
        raise


class ByteRange(ValueObject, frozen=True):
    """`size` bytes of a file from `offset` on."""

    path: Path
    offset: int
    size: int

    def read(self, start: int, count: int) -> bytes:
        """At most `count` bytes of the range from `start` on. Raises `BadImage` when the file cannot be read."""
        try:
            fd = open_regular(self.path)
            try:
                return os.pread(fd, max(0, min(count, self.size - start)), self.offset + start)
            finally:
                os.close(fd)
        except OSError as error:
            raise BadImage(f"cannot read {self.path}: {error.strerror}") from error


Content: TypeAlias = ByteRange | bytes


class LocalSource:
    """`root` is the manifest or index that the reference names; `find` says where a digest's content is."""

    def __init__(self, root: Digest, find: Callable[[Digest], Content | None], max_manifest_bytes: int) -> None:
        self.root = root
        self._find = find
        self._max_manifest_bytes = max_manifest_bytes

    async def manifest(self, digest: Digest | None) -> Stored:
        """The manifest; None for the image's root. Raises `BadImage` when it is missing or too large."""
        found = self._there(digest or self.root, "manifest")
        if isinstance(found, bytes):
            return Stored(found)
        if found.size > self._max_manifest_bytes:
            raise BadImage(f"manifest {digest or self.root} is over {self._max_manifest_bytes} bytes")
        return Stored(await in_thread(Pool.IMAGES, found.read, 0, found.size))

    @asynccontextmanager
    async def blob(self, blob: Layer, offset: int) -> AsyncIterator[Piece]:
        yield Piece(offset, _chunks(self._there(blob.digest, "layer"), offset))

    def _there(self, digest: Digest, what: str) -> Content:
        found = self._find(digest)
        if found is None:
            raise BadImage(f"{what} {digest} is missing from the image")
        return found


async def _chunks(content: Content, offset: int) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        yield content[offset:]
        return
    while data := await in_thread(Pool.IMAGES, content.read, offset, _CHUNK):
        offset += len(data)
        yield data
