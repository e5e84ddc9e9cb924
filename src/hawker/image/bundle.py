"""Files of a local image by name: in a directory, or in a tar archive that is read in place and never unpacked."""

import posixpath
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hawker.image.failure import BadImage
from hawker.image.inflate import Brake, InflateError, inflated, sniff
from hawker.image.limits import ImageLimits
from hawker.image.local import ByteRange
from hawker.image.manifest import Compression
from hawker.image.tar import EntryKind, TarReader
from hawker.image.tarfield import TarError

_CHUNK = 1 << 20
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
            found = path.stat()
        except OSError:
            return None
        return ByteRange(path, 0, found.st_size) if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True, slots=True)
class _Member:
    span: ByteRange | None = None
    link: str = ""


class TarBundle:
    """`archive` is a plain tar file; its entries' places are noted, nothing else is read. Raises `BadImage`."""

    def __init__(self, archive: Path, label: str) -> None:
        self.label = label
        self._members: dict[str, _Member] = {}
        try:
            with archive.open("rb") as stream:
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
        with archive.open("rb") as stream:
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
