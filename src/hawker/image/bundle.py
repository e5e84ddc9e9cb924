"""Files of a local image by name: in a directory, or in a tar archive that is read in place and never unpacked; and how
an archive is taken in that a client uploads."""

import os
import posixpath
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from hawker.errors import TooLarge
from hawker.fair.threads import Pool, in_thread
from hawker.image.failure import BadImage, disk_room
from hawker.image.inflate import Brake, InflateError, inflated, sniff
from hawker.image.limits import ImageLimits
from hawker.image.local import ByteRange, open_regular
from hawker.image.manifest import Compression
from hawker.image.reference import RegistryReference, parse
from hawker.image.tar import EntryKind, TarReader
from hawker.image.tarfield import TarError
from hawker.value_object import ValueObject

_CHUNK = _BATCH = 1 << 20
_ENTRIES_LIMIT = 100_000
_LINKS_LIMIT = 8


class ImageBundle(Protocol):
    """`label` is what errors call it."""

    label: str

    def find(self, name: str) -> ByteRange | None: ...


class DirectoryBundle:
    def __init__(self, root: Path) -> None:
        self.label = str(root)
        self._root = root

    def find(self, name: str) -> ByteRange | None:
        path = self._root / name
        try:
            found = path.lstat()
        except OSError:
            return None
        return ByteRange(path, 0, found.st_size) if stat.S_ISREG(found.st_mode) else None


class _Member(ValueObject, frozen=True):
    span: ByteRange | None = None
    link: str = ""


class TarBundle:
    """`archive` is a plain tar file; its entries' places are noted, nothing else is read. Raises `BadImage`."""

    def __init__(self, archive: Path, label: str) -> None:
        self.label = label
        self._members: dict[str, _Member] = {}
        try:
            with os.fdopen(open_regular(archive), "rb") as stream:
                for entry in (reader := TarReader(stream, by_seeking=True)):
                    name = _normal(entry.name)
                    if entry.kind is EntryKind.FILE:
                        self._members[name] = _Member(ByteRange(archive, reader.tell(), entry.size))
                    elif entry.kind is EntryKind.SYMLINK:
                        self._members[name] = _Member(link=posixpath.join(posixpath.dirname(name), _text(entry.link)))
                    elif entry.kind is EntryKind.HARD_LINK:
                        self._members[name] = _Member(link=_text(entry.link))
                    if len(self._members) > _ENTRIES_LIMIT:
                        raise BadImage(f"{label} has more than {_ENTRIES_LIMIT} entries")
        except TarError as error:
            raise BadImage(f"{label} is not an intact tar archive: {error}") from error
        except OSError as error:
            raise BadImage(f"cannot read {label}: {error.strerror}") from error

    def find(self, name: str) -> ByteRange | None:
        """Links are followed within the archive: old versions of Docker wrote a layer once and linked to it."""
        for _ in range(_LINKS_LIMIT):
            member = self._members.get(posixpath.normpath(name))
            if member is None or member.span is not None:
                return member.span if member else None
            name = member.link
        return None


def open_archive(archive: Path, label: str, scratch: Path, limits: ImageLimits, check: Callable[[], None]) -> TarBundle:
    """A tar file, or a compressed one, which is unpacked to the file `scratch` first. Raises `BadImage`."""
    try:
        with os.fdopen(open_regular(archive), "rb") as stream:
            compression = sniff(stream.read(8))
    except OSError as error:
        raise BadImage(f"cannot read {label}: {error.strerror}") from error
    if compression is Compression.NONE:
        return TarBundle(archive, label)
    _inflate(archive, label, compression, scratch, limits, check)
    return TarBundle(scratch, label)


def _inflate(
    archive: Path, label: str, compression: Compression, scratch: Path, limits: ImageLimits, check: Callable[[], None]
) -> None:
    brake = Brake(archive.stat().st_size, limits.max_import_bytes, limits, check)
    try:
        with inflated(archive, compression, brake) as stream, scratch.open("wb") as plain:
            while data := stream.read(_CHUNK):
                plain.write(data)
    except InflateError as error:
        raise BadImage(f"{label} {error}") from error


def _normal(name: bytes) -> str:
    return posixpath.normpath(_text(name))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


async def receive(stream: AsyncIterator[bytes], file: Path, most: int) -> None:
    """Take in an archive that a client uploads, up to `most` bytes. Raises `TooLarge` and `NoRoom`; the caller removes
    the file."""
    received = 0
    batch = bytearray()
    with disk_room("taking in an upload"), file.open("wb") as sink:
        async for chunk in stream:
            received += len(chunk)
            if received > most:
                raise TooLarge(f"the archive is over {most} bytes")
            batch += chunk
            if len(batch) >= _BATCH:
                await in_thread(Pool.IMAGES, sink.write, bytes(batch))
                batch.clear()
        await in_thread(Pool.IMAGES, sink.write, bytes(batch))


def archive_name(given: str | None, own: str) -> RegistryReference | None:
    """What to call an imported image: the name given, else its own if that is one. Raises `BadImage` for a bad name."""
    if given:
        reference = parse(given)
        if not isinstance(reference, RegistryReference) or reference.digest:
            raise BadImage(f"an imported image needs a name like app:v1, not {given[:200]!r}")
        return reference
    try:
        found = parse(own) if own else None
    except BadImage:
        return None
    return found if isinstance(found, RegistryReference) and not found.digest else None
