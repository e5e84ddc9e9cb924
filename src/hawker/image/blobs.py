"""The content-addressed store of compressed blobs: plain files named by their digest, shared by all images.

A file under its digest is whole and verified: it is written under `partial/`, synced, and renamed. Blocking calls;
those that sync belong in a thread.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hawker.failpoint import inside
from hawker.ids import Digest
from hawker.image.arriving_blob import ArrivingBlob
from hawker.image.config import Layer
from hawker.image.digest import digest_of, hex_of
from hawker.image.failure import BadImage

_CHUNK = 1 << 20


class BlobStore:
    def __init__(self, root: Path) -> None:
        self.folder = root / "blobs" / "sha256"
        self._partial = root / "partial"

    def open(self) -> None:
        for directory in (self.folder, self._partial):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: Digest) -> Path:
        return self.folder / hex_of(digest)

    def has(self, digest: Digest) -> bool:
        return self.path(digest).exists()

    def read(self, digest: Digest) -> bytes:
        """For manifests and configs, which are small."""
        return self.path(digest).read_bytes()

    def piece(self, digest: Digest, offset: int, count: int) -> bytes:
        """Raises `FileNotFoundError`."""
        with self.path(digest).open("rb") as blob:
            return os.pread(blob.fileno(), count, offset)

    def put(self, content: bytes) -> Digest:
        """Keep a small blob, durably."""
        digest = digest_of(content)
        if not self.has(digest):
            write_whole(self.path(digest), content, self._partial)
        return digest

    def partial(self, digest: Digest, reader: str) -> Path:
        """Each reader's own: what came for one must not complete what another cannot get."""
        mark = hashlib.sha256(reader.encode()).hexdigest()[:16]
        return self._partial / f"{hex_of(digest)}.{mark}"

    def adopt(self, digest: Digest, partial: Path) -> None:
        """The partial file is whole and verified: make it durable under its name."""
        sync(partial)
        inside("verified")
        os.rename(partial, self.path(digest))
        sync(self.folder)
        inside("kept")

    def all(self) -> Iterator[tuple[Digest, os.stat_result]]:
        for entry in os.scandir(self.folder):
            yield Digest(f"sha256:{entry.name}"), entry.stat()

    def remove(self, digest: Digest) -> int:
        """Gives the bytes freed."""
        return remove_file(self.path(digest))

    def drop_partials(self, before: float, busy: frozenset[Digest]) -> int:
        """Remove what nobody has gone on with since `before` (Unix seconds) and nobody works on. Gives bytes freed."""
        freed = 0
        for entry in os.scandir(self._partial):
            if Digest(f"sha256:{entry.name.partition('.')[0]}") not in busy and entry.stat().st_mtime < before:
                freed += remove_file(Path(entry.path))
        return freed

    def disk_bytes(self) -> int:
        return sum(
            entry.stat().st_blocks * 512 for folder in (self.folder, self._partial) for entry in os.scandir(folder)
        )


class PartialBlob:
    """A blob on its way in: the bytes so far and their hash. It can be left and taken up again."""

    def __init__(self, store: BlobStore, blob: Layer, reader: str, arriving: ArrivingBlob | None = None) -> None:
        self._store = store
        self._blob = blob
        self._arriving = arriving or ArrivingBlob(blob.size)
        self._path = store.partial(blob.digest, reader)
        self._fd = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.size = 0
        self._hash = hashlib.sha256()

    def recall(self) -> None:
        """Take up what an earlier try left: its bytes are hashed again, not trusted."""
        while data := os.read(self._fd, _CHUNK):
            self._hash.update(data)
            self.size += len(data)
        if self.size > self._blob.size:
            self.restart()
        self._arriving.grew(self._path, self.size)

    def restart(self) -> None:
        if self.size:
            self._arriving.lose()
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self.size = 0
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Raises `BadImage` when there is more than the manifest says."""
        if self.size + len(data) > self._blob.size:
            self.discard()
            raise BadImage(f"layer {self._blob.digest} is longer than the {self._blob.size} bytes its manifest says")
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
            inside("written")
        self._hash.update(data)
        self.size += len(data)
        self._arriving.grew(self._path, self.size)

    @property
    def is_whole(self) -> bool:
        return self.size == self._blob.size

    def finish(self) -> None:
        """Verify and keep. Raises `BadImage` naming the layer, and forgets it, when its digest is another."""
        found = f"sha256:{self._hash.hexdigest()}"
        if found != self._blob.digest:
            self.discard()
            raise BadImage(f"layer {self._blob.digest} does not match its digest: what came has {found}")
        self._store.adopt(self._blob.digest, self._path)
        self._arriving.whole(self._store.path(self._blob.digest))

    def discard(self) -> None:
        self._arriving.lose()
        remove_file(self._path)

    def close(self) -> None:
        os.close(self._fd)


def write_whole(path: Path, content: bytes, workspace: Path) -> None:
    """The whole file or none of it, durably; several writers of one path do not meet. `workspace` is a directory on the
    same filesystem."""
    fd, fresh = tempfile.mkstemp(dir=workspace, suffix=".tmp")
    try:
        with os.fdopen(fd, "wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_file(path: Path) -> int:
    """Gives the bytes freed; nothing there frees nothing."""
    try:
        freed = path.stat().st_blocks * 512
        path.unlink()
    except FileNotFoundError:
        return 0
    return freed
