"""A blob that is read while it comes: its bytes up to where the download is, and then a wait for more.

Whoever downloads says how far it is, and at the end either that the blob is whole or that it is lost: begun anew, or
given up. Nothing that is read here is verified; only the download knows, once it has seen the last byte.
"""

import io
import os
import threading
from pathlib import Path

from hawker.image.local import open_regular


class BlobLost(Exception):
    """What was read is not what will come, or nothing more will."""


class ArrivingBlob:
    """`size` is how long the blob will be, in bytes. The writer's calls and the readers' come from any thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._change = threading.Condition()
        self._path: Path | None = None
        self._there = 0
        self._lost = self._verified = False

    def grew(self, path: Path, there: int) -> None:
        """`there` bytes from the beginning on are at `path` now."""
        with self._change:
            self._path, self._there = path, there
            self._change.notify_all()

    def whole(self, path: Path) -> None:
        """All of it is at `path`, verified; it may be of another size than was said."""
        with self._change:
            self._verified, self.size = True, path.stat().st_size
        self.grew(path, self.size)

    def lose(self) -> None:
        """Readers hear of it at their next read, and for good. No effect on a blob that is whole."""
        with self._change:
            self._lost = self._lost or not self._verified
            self._change.notify_all()

    @property
    def is_lost(self) -> bool:
        """Whether bytes that were read may be others than those that were verified, also where no reader has heard."""
        with self._change:
            return self._lost

    def open(self) -> io.RawIOBase:
        """From the beginning. Waits until the first byte has come. Raises `BlobLost`, also while it is read, and
        `OSError`."""
        with self._change:
            self._change.wait_for(lambda: self._path is not None or self._lost)
            if self._lost or self._path is None:
                raise BlobLost
            path = self._path
        return _Follower(self, open_regular(path))

    def wait_beyond(self, offset: int) -> int:
        """How many bytes are there: more than `offset`, unless that is the end. Raises `BlobLost`."""
        with self._change:
            self._change.wait_for(lambda: self._there > offset or self._there == self.size or self._lost)
            if self._lost:
                raise BlobLost
            return self._there


class _Follower(io.RawIOBase):
    """Goes on with the file that it opened when that gets its final name."""

    def __init__(self, blob: ArrivingBlob, fd: int) -> None:
        self._blob = blob
        self._fd = fd
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = self._blob.wait_beyond(self._at) - self._at
        count = os.preadv(self._fd, [memoryview(buffer)[:left]], self._at) if left > 0 else 0
        if left > 0 and not count:
            raise BlobLost  # it was cut off to begin anew, and this is not its end
        self._at += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()
