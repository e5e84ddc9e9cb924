"""Images in files: in the OCI layout (image-spec, image-layout.md) or as `docker save` writes them, in a directory or
in a tar archive that is read in place and never unpacked; and how an archive is taken in that a client uploads.

Docker's archives have no manifest of the registry's kind, so one is made: always the same for the same archive.
"""

import hashlib
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from hawker.errors import TooLarge
from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.config import read_config
from hawker.image.failure import BadImage, disk_room
from hawker.image.inflate import Brake, InflateError, inflated, sniff
from hawker.image.limits import ImageLimits
from hawker.image.manifest import (
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
    Compression,
    Descriptor,
    Index,
    Platform,
    choose,
    manifest_digest,
    read_manifest,
)
from hawker.image.reference import RegistryReference, digest_of, hex_of, is_digest, parse
from hawker.image.source import ByteRange, Content, LocalSource, open_regular
from hawker.image.tar import EntryKind, TarEntry, TarError, TarReader
from hawker.value_object import ValueObject

_BATCH = 1 << 20
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
    link: bytes = b""


class TarBundle:
    """`archive` is a plain tar file; its entries' places are noted, nothing else is read. Names and links are kept as
    bytes: as text, one rare character makes all of a name four times as large. `check` is called for each entry. Raises
    `BadImage`."""

    def __init__(self, archive: Path, label: str, limits: ImageLimits, check: Callable[[], None]) -> None:
        self.label = label
        self._members: dict[bytes, _Member] = {}
        entries = names_bytes = 0
        try:
            with os.fdopen(open_regular(archive), "rb") as stream:
                for entry in (reader := TarReader(stream, by_seeking=True)):
                    check()
                    entries, names_bytes = entries + 1, names_bytes + self._note(entry, archive, reader.tell())
                    if entries > _ENTRIES_LIMIT:
                        raise BadImage(f"{label} has more than {_ENTRIES_LIMIT} entries")
                    if names_bytes > limits.max_names_bytes:
                        raise BadImage(f"{label} has more than {limits.max_names_bytes} bytes of names and links")
        except TarError as error:
            raise BadImage(f"{label} is not an intact tar archive: {error}") from error
        except OSError as error:
            raise BadImage(f"cannot read {label}: {error.strerror}") from error

    def _note(self, entry: TarEntry, archive: Path, at: int) -> int:
        """Gives how many bytes the name and the link take. What a sparse file says of its size is nothing to rely on:
        the place of one file does not reach into that of the next."""
        name = posixpath.normpath(entry.name)
        if entry.kind is EntryKind.FILE:
            self._members[name] = _Member(ByteRange(archive, at, entry.stored))
        elif entry.kind is EntryKind.SYMLINK:
            self._members[name] = _Member(link=posixpath.join(posixpath.dirname(name), entry.link))
        elif entry.kind is EntryKind.HARD_LINK:
            self._members[name] = _Member(link=entry.link)
        else:
            return 0
        return len(name) + len(self._members[name].link)

    def find(self, name: str) -> ByteRange | None:
        """Links are followed within the archive: old versions of Docker wrote a layer once and linked to it."""
        try:
            sought = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
        for _ in range(_LINKS_LIMIT):
            member = self._members.get(posixpath.normpath(sought))
            if member is None or member.span is not None:
                return member.span if member else None
            sought = member.link
        return None


def open_archive(archive: Path, label: str, scratch: Path, limits: ImageLimits, check: Callable[[], None]) -> TarBundle:
    """A tar file, or a compressed one, which is unpacked to the file `scratch` first. Raises `BadImage`."""
    try:
        with os.fdopen(open_regular(archive), "rb") as stream:
            compression = sniff(stream.read(8))
    except OSError as error:
        raise BadImage(f"cannot read {label}: {error.strerror}") from error
    if compression is Compression.NONE:
        return TarBundle(archive, label, limits, check)
    _inflate(archive, label, compression, scratch, limits, check)
    return TarBundle(scratch, label, limits, check)


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
    """The name for an imported image: the name given, else its own if that is one. Raises `BadImage` for a bad name."""
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


INDEX = "index.json"
_TAG = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"


class LocalImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image found in a bundle. `name` is what it calls itself, or empty."""

    source: LocalSource
    name: str


def open_layout(bundle: ImageBundle, tag: str | None, platform: Platform, limits: ImageLimits) -> LocalImage:
    """The image of an OCI layout. Raises `BadImage` when there is no such image, or more than one without a tag that
    tells them apart."""
    entry = _choose(_index(bundle, limits), tag, platform, bundle.label)

    def find(digest: Digest) -> ByteRange | None:
        return bundle.find(f"blobs/sha256/{hex_of(digest)}") if is_digest(digest) else None

    source = LocalSource(manifest_digest(entry), find, limits.max_manifest_bytes)
    annotations = entry.annotations or {}
    return LocalImage(source=source, name=annotations.get(_FULL_NAME) or annotations.get(_TAG) or "")


def _index(bundle: ImageBundle, limits: ImageLimits) -> Index:
    found = bundle.find(INDEX)
    if found is None:
        raise BadImage(f"{bundle.label} is not an OCI image layout: it has no {INDEX}")
    if found.size > limits.max_manifest_bytes:
        raise BadImage(f"{INDEX} of {bundle.label} is over {limits.max_manifest_bytes} bytes")
    index = read_manifest(found.read(0, found.size), limits)
    if not isinstance(index, Index):
        raise BadImage(f"{INDEX} of {bundle.label} is not an index")
    return index


def _choose(index: Index, tag: str | None, platform: Platform, label: str) -> Descriptor:
    entries = index.manifests
    if tag is not None:
        entries = tuple(entry for entry in entries if (entry.annotations or {}).get(_TAG) == tag)
        if not entries:
            offered = ", ".join(sorted({(entry.annotations or {}).get(_TAG, "untagged") for entry in index.manifests}))
            raise BadImage(f"{label} has no image tagged {tag!r}; there is: {offered[:300] or 'none'}")
    if len(entries) == 1:
        return entries[0]
    if len({(entry.annotations or {}).get(_TAG) for entry in entries}) > 1:
        raise BadImage(f"{label} has several images; name one by its tag")
    return choose(Index(manifests=entries), platform)


MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_SUFFIXES = {Compression.NONE: "", Compression.GZIP: "+gzip", Compression.ZSTD: "+zstd"}


class _Listed(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    config: str
    repo_tags: tuple[str, ...] | None = None
    layers: tuple[str, ...] = ()


def open_docker(bundle: ImageBundle, limits: ImageLimits, check: Callable[[], None]) -> LocalImage:
    """The image of a docker-archive. Raises `BadImage`. Reads each layer once, for its digest, however often it is
    listed; `check` is called now and then."""
    listed = _listed(bundle, limits)
    if len(listed.layers) > limits.max_layers:
        raise BadImage(f"{bundle.label} has {len(listed.layers)} layers; {limits.max_layers} is the limit")
    config = _span(bundle, listed.config).read(0, limits.max_config_bytes)
    diff_ids = read_config(config).diff_ids
    if len(diff_ids) != len(listed.layers):
        raise BadImage(f"{bundle.label} has {len(listed.layers)} layers, its config lists {len(diff_ids)}")
    spans = [_span(bundle, name) for name in listed.layers]
    pointers: dict[ByteRange, _Pointer] = {}
    for span, diff_id in zip(spans, diff_ids, strict=True):
        if span not in pointers:  # archives may have a layer twice, by a link
            pointers[span] = _pointer(span, check)
        _check_layer(pointers[span], diff_id)
    manifest = _manifest(config, [pointers[span] for span in spans])
    contents: dict[Digest, Content] = {Digest(pointer.digest): span for span, pointer in pointers.items()}
    contents |= {digest_of(config): config, digest_of(manifest): manifest}
    source = LocalSource(digest_of(manifest), contents.get, limits.max_manifest_bytes)
    return LocalImage(source=source, name=next(iter(listed.repo_tags or ()), ""))


class _Pointer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    media_type: str
    digest: str
    size: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 2
    media_type: str = OCI_MANIFEST
    config: _Pointer
    layers: list[_Pointer]


def _listed(bundle: ImageBundle, limits: ImageLimits) -> _Listed:
    found = _span(bundle, MANIFEST)
    try:
        listed = msgspec.json.decode(found.read(0, limits.max_manifest_bytes), type=list[_Listed])
    except msgspec.DecodeError as error:
        raise BadImage(f"{MANIFEST} of {bundle.label} cannot be read: {error}") from error
    if len(listed) != 1:
        raise BadImage(f"{bundle.label} has {len(listed)} images; one is wanted")
    return listed[0]


def _span(bundle: ImageBundle, name: str) -> ByteRange:
    found = bundle.find(name)
    if found is None:
        raise BadImage(f"{bundle.label} is not an archive of docker save: it has no {name[:200]!r}")
    return found


def _pointer(span: ByteRange, check: Callable[[], None]) -> _Pointer:
    compression = sniff(span.read(0, 8))
    return _Pointer(media_type=OCI_LAYER + _SUFFIXES[compression], digest=_digest(span, check), size=span.size)


def _check_layer(layer: _Pointer, diff_id: str) -> None:
    """The config's digest is of the unpacked layer; most archives hold just that."""
    if layer.media_type == OCI_LAYER and layer.digest != diff_id:
        raise BadImage(f"layer {diff_id[:80]} does not match its digest: what is in the archive has {layer.digest}")


def _digest(span: ByteRange, check: Callable[[], None]) -> str:
    found = hashlib.sha256()
    position = 0
    while data := span.read(position, _CHUNK):
        check()
        found.update(data)
        position += len(data)
    return f"sha256:{found.hexdigest()}"


def _manifest(config: bytes, layers: list[_Pointer]) -> bytes:
    pointer = _Pointer(media_type=OCI_CONFIG, digest=digest_of(config), size=len(config))
    return msgspec.json.encode(_Manifest(config=pointer, layers=layers))
