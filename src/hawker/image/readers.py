"""Which organizations may use which blob: those that a source gave its bytes to. Kept beside the blobs, one small file
each, synced.

A digest is no secret and a registry may say anything, so what is here already proves nothing of who asks for it: an
organization reads a blob when it came for that organization, or for everybody, and else it comes once more.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NewType

import msgspec

from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.blobs import BlobStore, remove_file, write_whole
from hawker.image.digest import hex_of
from hawker.image.locks import KeyedLocks
from hawker.log import bind

ImageReader = NewType("ImageReader", str)
"""An organization's name, or one of the two below, which are none."""

EVERYBODY = ImageReader("*")
NODE = ImageReader("")  # pulls for nobody's machine, and passes no image on

_log = bind("hawker.image")


class BlobReaders:
    """Of one image cache at `root`."""

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
        """Its source has given the blob to the organization, or gives it to everybody. No effect for the node, nor
        when that is known."""
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
