"""Layers into a tree and a pool: content is written as it comes, once, under plain numbers; names stay in memory.

Runs in a worker thread. What a layer says can therefore never decide where on the host a byte is written. Device nodes
are dropped (a machine gets its own /dev), sockets cannot be in a tar, set-id bits, owners and times are kept.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from hawker.ids import Digest
from hawker.image.blobs import ArrivingBlob
from hawker.image.failure import BadLayer
from hawker.image.inflate import Brake, InflateError, inflated
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Compression
from hawker.image.tar import EntryKind, TarEntry, TarError, TarReader
from hawker.image.tree import Fifo, FileMeta, FileTree, Symlink, TreeDirectory, TreeError, TreeFile, shown
from hawker.value_object import ValueObject

_CHUNK = 1 << 20
_HEADERS = 1536  # an entry's headers and padding, generously
_KEPT_XATTRS = ("user.", "security.capability")
_DROPPED_XATTRS = ("user.overlay.",)  # overlayfs would obey them
_LINK_LIMIT = 4095
_XATTRS_LIMIT = 2048  # of one entry: what every filesystem on the way can hold
_XATTRS_MOST = 64  # of one entry
_XATTR_BYTES = 128  # of memory for an attribute, beside its value and its name, whose characters take up to 4 each

Xattrs: TypeAlias = tuple[tuple[str, bytes], ...]


class PoolFull(Exception):
    """The place chosen for the pool has no room for this image; another one may have."""


class LayerBlob(ValueObject, frozen=True):
    """A layer that is on disk, verified, or one that is on its way there."""

    digest: Digest
    path: Path
    compression: Compression
    arriving: ArrivingBlob | None = None

    @property
    def packed_bytes(self) -> int:
        return self.path.stat().st_size if self.arriving is None else self.arriving.size


class Unpacker:
    """The unpacker of one image. `pool` is an empty directory that nobody else can reach; `budget` how many bytes may
    go there. `moved` hears how many packed bytes of all layers were read."""

    def __init__(
        self,
        pool: Path,
        budget: int,
        limits: ImageLimits,
        check: Callable[[], None],
        moved: Callable[[int], None] = lambda packed: None,
    ) -> None:
        self.tree = FileTree(limits)
        self._pool = pool
        self._budget = budget
        self._limits = limits
        self._check = check
        self._moved = moved
        self._packed_before = 0
        self._layer_bytes = self._image_bytes = self._entries = self._names_bytes = 0

    def unpack(self, layers: Sequence[LayerBlob]) -> FileTree:
        """Unpacks all layers into one tree. Raises `BadLayer` naming the layer and the entry at fault, or
        `PoolFull`."""
        for number, layer in enumerate(layers):
            self._layer_bytes = 0
            self._unpack_layer(number, layer)
        return self.tree

    def _unpack_layer(self, number: int, layer: LayerBlob) -> None:
        most = self._limits.max_layer_bytes + self._limits.max_files * _HEADERS
        packed, before = layer.packed_bytes, self._packed_before
        self._packed_before += packed
        brake = Brake(packed, most, self._limits, self._check)
        name = b""
        try:
            source = layer.arriving or layer.path
            with inflated(source, layer.compression, brake, lambda at: self._moved(before + at)) as stream:
                archive = TarReader(stream, self._limits.max_path)
                for entry in archive:
                    name = entry.name
                    xattrs = kept_xattrs(entry)
                    self._count(entry, xattrs)
                    self._place(number, entry, xattrs, archive)
        except TarError as error:
            raise BadLayer(layer.digest, str(error), shown(error.entry)) from error
        except (TreeError, InflateError) as error:
            raise BadLayer(layer.digest, str(error), shown(name)) from error

    def _count(self, entry: TarEntry, xattrs: Xattrs) -> None:
        """Against the limits, before anything is written."""
        limits = self._limits
        self._entries += 1
        self._layer_bytes += entry.size
        self._image_bytes += entry.size
        self._names_bytes += len(entry.name) + len(entry.link)
        self._names_bytes += sum(_XATTR_BYTES + 4 * len(name) + len(value) for name, value in xattrs)
        for value, most, what in (
            (self._entries, limits.max_files, "entries"),
            (self._layer_bytes, limits.max_layer_bytes, "bytes in one layer"),
            (self._image_bytes, limits.max_image_bytes, "bytes in one image"),
            (self._names_bytes, limits.max_names_bytes, "bytes of names and attributes"),
        ):
            if value > most:
                raise TreeError(f"more than {most} {what}")
        if self._image_bytes > self._budget:
            raise PoolFull

    def _place(self, layer: int, entry: TarEntry, xattrs: Xattrs, archive: TarReader) -> None:
        meta = FileMeta(entry.mode, entry.uid, entry.gid, entry.mtime_ns, xattrs)
        match entry.kind:
            case EntryKind.FILE:
                self.tree.add(layer, entry.name, TreeFile(meta, self._keep(entry, archive), entry.size))
            case EntryKind.DIRECTORY:
                self.tree.add(layer, entry.name, TreeDirectory(meta))
            case EntryKind.SYMLINK:
                self.tree.add(layer, entry.name, Symlink(meta, _checked_target(entry.link)))
            case EntryKind.HARD_LINK:
                self.tree.link(layer, entry.name, entry.link)
            case EntryKind.FIFO:
                self.tree.add(layer, entry.name, Fifo(meta))
            case EntryKind.DEVICE:
                self.tree.remove(layer, entry.name)

    def _keep(self, entry: TarEntry, archive: TarReader) -> int:
        """Write the entry's content into the pool; its number there."""
        number = self._entries
        fd = os.open(self._pool / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            for offset, length in entry.extents:
                _write_extent(fd, archive, offset, length)
            if sum(length for _, length in entry.extents) < entry.size:
                os.truncate(fd, entry.size)
        finally:
            os.close(fd)
        return number


def _write_extent(fd: int, archive: TarReader, offset: int, length: int) -> None:
    while length:
        data = archive.read(min(length, _CHUNK))
        written = 0
        while written < len(data):
            written += os.pwrite(fd, memoryview(data)[written:], offset + written)
        offset += len(data)
        length -= len(data)


def kept_xattrs(entry: TarEntry) -> Xattrs:
    """Capabilities and the user's own; `trusted.overlay.*` and the like would be orders to the host's kernel.
    Raises `TreeError` when they are too many or too large."""
    kept = tuple(
        (name, value)
        for name, value in entry.xattrs
        if name.startswith(_KEPT_XATTRS) and not name.startswith(_DROPPED_XATTRS)
    )
    if any("\0" in name for name, _ in kept):
        raise TreeError("an extended attribute with a zero byte in its name")
    if len(kept) > _XATTRS_MOST:
        raise TreeError(f"more than {_XATTRS_MOST} extended attributes")
    if sum(len(name) + len(value) for name, value in kept) > _XATTRS_LIMIT:
        raise TreeError(f"extended attributes of more than {_XATTRS_LIMIT} bytes")
    return kept


def _checked_target(target: bytes) -> bytes:
    if not 0 < len(target) <= _LINK_LIMIT:
        raise TreeError(f"a symbolic link of {len(target)} bytes")
    return target
