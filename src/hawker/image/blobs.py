"""The content-addressed store of compressed blobs: plain files named by their digest, shared by all images, and beside
them which organizations may use which: those that a source gave its bytes to. A blob can be read while it arrives;
nothing that is read so is verified: only the download knows, once it has seen the last byte.

A file under its digest is whole and verified: it is written under `partial/`, synced, and renamed. Blocking calls;
those that sync belong in a thread. A digest is no secret and a registry may say anything: an organization reads a blob
when it came for that organization, or for everybody, and else it comes once more.
"""

import hashlib
import io
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NewType

import msgspec

from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.reference import digest_of, hex_of
from hawker.image.source import open_regular
from hawker.keyed_locks import KeyedLocks
from hawker.log import bind


class BlobLost(Exception):
    """The bytes that were read are not those that will come, or nothing more will come."""


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
        """Takes note that the whole blob is at `path`, verified; it may be of another size than was said."""
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
        """Opens the blob from the beginning. Waits until the first byte has come. Raises `BlobLost`, also while it is
        read, and `OSError`."""
        with self._change:
            self._change.wait_for(lambda: self._path is not None or self._lost)
            if self._lost or self._path is None:
                raise BlobLost
            path = self._path
        return _Follower(self, open_regular(path))

    def wait_beyond(self, offset: int) -> int:
        """The number of bytes that are there: more than `offset`, unless that is the end. Raises `BlobLost`."""
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


_CHUNK = 1 << 20
_GONE = ".gone"


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
        """The bytes of a blob, for manifests and configs, which are small."""
        return self.path(digest).read_bytes()

    def piece(self, digest: Digest, offset: int, count: int) -> bytes:
        """At most `count` bytes of a blob from `offset` on. Raises `FileNotFoundError`."""
        with self.path(digest).open("rb") as blob:
            return os.pread(blob.fileno(), count, offset)

    def put(self, content: bytes) -> Digest:
        """Keep a small blob, durably."""
        digest = digest_of(content)
        if not self.has(digest):
            write_whole(self.path(digest), content, self._partial)
        return digest

    def partial(self, digest: Digest, owner: str) -> Path:
        """The path of an owner's own part of a blob: what came for one reader must not complete what another cannot
        get, and two downloads must not write one file."""
        mark = hashlib.sha256(owner.encode()).hexdigest()[:16]
        return self._partial / f"{hex_of(digest)}.{mark}"

    def adopt(self, digest: Digest, partial: Path) -> None:
        """The partial file is whole and verified: make it durable under its name."""
        sync(partial)
        inside("verified")
        os.rename(partial, self.path(digest))
        sync(self.folder)
        inside("kept")

    def all(self) -> Iterator[tuple[Digest, os.stat_result]]:
        for entry, found in _files_in(self.folder):
            yield Digest(f"sha256:{entry.name}"), found

    def remove(self, digest: Digest) -> int:
        """Gives the bytes freed."""
        return remove_file(self.path(digest))

    def set_aside(self, digest: Digest) -> Path:
        """Take the blob's name from it: from now on it is not here. Gives the file, which is to be removed and may be
        gone. Quick, also where the removal is not."""
        aside = self._partial / f"{hex_of(digest)}{_GONE}"
        with suppress(FileNotFoundError):
            os.rename(self.path(digest), aside)
        return aside

    def drop_partials(self, before: float, busy: frozenset[Digest]) -> int:
        """Remove what nobody has gone on with since `before` (Unix seconds) and nobody works on, and all that is set
        aside. Gives bytes freed."""
        freed = 0
        for entry, found in _files_in(self._partial):
            left = Digest(f"sha256:{entry.name.partition('.')[0]}") not in busy and found.st_mtime < before
            if left or entry.name.endswith(_GONE):
                freed += remove_file(Path(entry.path))
        return freed

    def drop_partials_of(self, digest: Digest) -> None:
        """Remove all owners' parts of a blob, on which nobody works."""
        for file in self._partial.glob(f"{hex_of(digest)}.*"):
            remove_file(file)

    def disk_bytes(self) -> int:
        return sum(found.st_blocks * 512 for folder in (self.folder, self._partial) for _, found in _files_in(folder))


def _files_in(folder: Path) -> "Iterator[tuple[os.DirEntry[str], os.stat_result]]":
    """All but those that somebody removes meanwhile, as another prune does."""
    for entry in os.scandir(folder):
        try:
            found = entry.stat()
        except FileNotFoundError:
            continue
        yield entry, found


class PartialBlob:
    """A blob on its way in: the bytes so far and their hash. It can be left and taken up again."""

    def __init__(self, store: BlobStore, blob: Layer, owner: str, arriving: ArrivingBlob | None = None) -> None:
        self._store = store
        self._blob = blob
        self._arriving = arriving or ArrivingBlob(blob.size)
        self._path = store.partial(blob.digest, owner)
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
        """Writes the next bytes of the blob. Raises `BadImage` when there is more than the manifest says."""
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


ImageReader = NewType("ImageReader", str)
"""An organization's name, or one of the two below, which are none."""

EVERYBODY = ImageReader("*")
NODE = ImageReader("")  # pulls for nobody's machine, and passes no image on

_log = bind("hawker.image")


class BlobReaders:
    """The readers of the blobs of one image cache at `root`."""

    def __init__(self, root: Path, blobs: BlobStore) -> None:
        self._folder = root / "readers"
        self._blobs = blobs
        self._known: dict[Digest, frozenset[ImageReader]] = {}
        self._writing: KeyedLocks[Digest] = KeyedLocks()

    def open(self) -> None:
        """Read what is known. A blob from before readers were kept is everybody's, as it was then; a blob whose file
        cannot be read is nobody's, and comes again. Blocking."""
        if not self._folder.exists():
            self._begin()
        for file in self._folder.iterdir():
            digest = Digest(f"sha256:{file.name}")
            if file.suffix or not self._blobs.has(digest):
                remove_file(file)
            else:
                self._known[digest] = _read(file)

    def _begin(self) -> None:
        """All or nothing: the folder gets its name when it is whole."""
        fresh = self._folder.with_suffix(".new")
        fresh.mkdir(mode=0o700, parents=True, exist_ok=True)
        for digest, _ in self._blobs.all():
            write_whole(fresh / hex_of(digest), _encode(frozenset({EVERYBODY})), fresh)
        fresh.rename(self._folder)

    def may_read(self, reader: ImageReader, digests: Iterable[Digest]) -> bool:
        """Whether all of them are here for the organization. The node itself may read everything."""
        return reader == NODE or all(self._known.get(each, frozenset()) & {reader, EVERYBODY} for each in digests)

    async def add(self, reader: ImageReader, digest: Digest) -> None:
        """Notes that a blob's source has given it to the organization, or gives it to everybody. No effect for the
        node, nor when that is known."""
        if self.may_read(reader, (digest,)):
            return
        async with self._writing.hold(digest):
            readers = self._known.get(digest, frozenset()) | {reader}
            await in_thread(Pool.IMAGES, write_whole, self._folder / hex_of(digest), _encode(readers), self._folder)
            self._known[digest] = readers

    def forget(self, digest: Digest) -> None:
        """The blob is gone. Blocking, but quick."""
        self._known.pop(digest, None)
        remove_file(self._folder / hex_of(digest))


def _encode(readers: frozenset[ImageReader]) -> bytes:
    return msgspec.json.encode(sorted(readers))


def _read(file: Path) -> frozenset[ImageReader]:
    try:
        return frozenset(map(ImageReader, msgspec.json.decode(file.read_bytes(), type=tuple[str, ...])))
    except (msgspec.DecodeError, OSError) as error:
        _log.error("readers of a blob cannot be read", extra={"path": str(file), "reason": str(error)})
        return frozenset()
