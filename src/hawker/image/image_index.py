"""The images that are whole, and the names they go by: one small JSON file each, read at boot, synced when written.

An image's file is written last, after its blobs and its block image; so what is in the index is complete. Its time of
change is when the image was last used. A name counts once its image is complete; until then the old meaning holds.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from hawker.fair.threads import Pool, in_thread
from hawker.ids import Digest
from hawker.image.blobs import remove_file, write_whole
from hawker.image.config import Image
from hawker.image.manifest import Resolved
from hawker.image.reference import Reference, hex_of, pinned_by
from hawker.log import bind

T = TypeVar("T")

_log = bind("hawker.image")

_EXPECTED_LIMIT = 1000


class ImageName(msgspec.Struct, frozen=True, kw_only=True):
    """A reference and the image that it last resolved to. `imported`: it was given to an upload, and no registry is
    asked about it; `at` is when, in Unix seconds, 0 where that is not known. Of a fleet's meanings of a name the newest
    counts."""

    reference: str
    """The reference as a config writes it, with registry and tag filled in."""
    digest: Digest
    imported: bool = False
    at: float = 0.0


class ImageIndex:
    def __init__(self, root: Path) -> None:
        self._images_dir = root / "images"
        self._names_dir = root / "names"
        self._images: dict[Digest, Image] = {}
        self._names: dict[str, ImageName] = {}
        self._blobs: frozenset[Digest] | None = None  # of all images, once somebody has asked since the last change
        self._unreadable: set[Path] = set()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Called in the event loop's thread when there is an image or a name more or less."""
        self._listeners.append(changed)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def open(self) -> None:
        """Read everything. A file that a crash cut off was never renamed into place."""
        for directory in (self._images_dir, self._names_dir):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for stale in directory.glob("*.tmp"):
                remove_file(stale)
        for image in self._read(self._images_dir, Image):
            self._images[image.digest] = image
        self._blobs = None
        for name in self._read(self._names_dir, ImageName):
            self._names[name.reference] = name

    def _read(self, directory: Path, shape: type[T]) -> Iterator[T]:
        """One damaged file costs its own image or name, and no other."""
        for file in directory.glob("*.json"):
            try:
                yield msgspec.json.decode(file.read_bytes(), type=shape)
            except (msgspec.DecodeError, OSError) as error:
                self._unreadable.add(file)
                to_do = "pull or import the image again, or remove the file"
                _log.error("image file cannot be read", extra={"path": str(file), "reason": str(error), "todo": to_do})

    @property
    def is_whole(self) -> bool:
        """Whether all that is here could be read. What an image needs whose file is damaged is not known."""
        return not self._unreadable

    def image(self, digest: Digest) -> Image | None:
        return self._images.get(digest)

    def images(self) -> list[Image]:
        return sorted(self._images.values(), key=lambda image: image.created_at)

    def needs(self, blob: Digest) -> bool:
        """Whether an image that is here is made of the blob."""
        if self._blobs is None:
            self._blobs = frozenset[Digest]().union(*(image.blobs for image in self._images.values()))
        return blob in self._blobs

    def name(self, reference: str) -> ImageName | None:
        return self._names.get(reference)

    def names_of(self, digest: Digest) -> tuple[str, ...]:
        return tuple(sorted(name.reference for name in self._names.values() if name.digest == digest))

    async def put_image(self, image: Image) -> None:
        await in_thread(
            Pool.IMAGES, write_whole, self._image_file(image.digest), msgspec.json.encode(image), self._images_dir
        )
        self._images[image.digest] = image
        self._blobs = None
        self._unreadable.discard(self._image_file(image.digest))
        self._changed()

    async def put_name(self, name: ImageName) -> None:
        if self._names.get(name.reference) != name:
            await in_thread(
                Pool.IMAGES, write_whole, self._name_file(name.reference), msgspec.json.encode(name), self._names_dir
            )
            self._names[name.reference] = name
            self._unreadable.discard(self._name_file(name.reference))
            self._changed()

    def names(self) -> list[ImageName]:
        return list(self._names.values())

    def remove(self, digest: Digest) -> None:
        """The image and all its names."""
        for reference in self.names_of(digest):
            remove_file(self._name_file(reference))
            del self._names[reference]
        remove_file(self._image_file(digest))
        self._images.pop(digest, None)
        self._blobs = None
        self._changed()

    def touch(self, digest: Digest, now: float) -> None:
        os.utime(self._image_file(digest), (now, now))

    def used_at(self, digest: Digest) -> float:
        return self._image_file(digest).stat().st_mtime

    def _image_file(self, digest: Digest) -> Path:
        return self._images_dir / f"{hex_of(digest)}.json"

    def _name_file(self, reference: str) -> Path:
        return self._names_dir / f"{hashlib.sha256(reference.encode()).hexdigest()}.json"


class ImageNames:
    """The names of images, and the image to which each leads."""

    def __init__(self, index: ImageIndex) -> None:
        self._index = index
        self._expected: dict[Digest, dict[str, Resolved]] = {}
        self._given_at: dict[tuple[str, Digest], float] = {}

    def lookup(self, reference: Reference) -> Digest | None:
        """The digest that the reference last meant here: by its name, or because it says a digest itself; None when it
        meant none."""
        name = self._index.name(str(reference))
        if name:
            return name.digest
        return pinned_by(reference)

    def imported(self, reference: Reference) -> ImageName | None:
        """The name, if it was given to an upload."""
        name = self._index.name(str(reference))
        return name if name is not None and name.imported else None

    async def resolved(self, resolved: Resolved, at: float = 0.0) -> None:
        """A reference has been resolved; its image may be here or may be about to come. `at` is when an imported one
        got its name."""
        if at:
            self._given_at[resolved.reference, resolved.digest] = at
            if len(self._given_at) > _EXPECTED_LIMIT:
                del self._given_at[next(iter(self._given_at))]
        if self._index.image(resolved.digest):
            return await self._put(resolved)
        self._expected.setdefault(resolved.digest, {})[resolved.reference] = resolved
        if len(self._expected) > _EXPECTED_LIMIT:
            del self._expected[next(iter(self._expected))]

    def best(self, resolved: Resolved) -> Resolved:
        """The most telling reference to the image: what a user wrote rather than a bare digest."""
        return min([resolved, *self._expected.get(resolved.digest, {}).values()], key=_is_pinned)

    async def complete(self, resolved: Resolved) -> None:
        """The image is in the index: it goes by all the names that wait for it."""
        waiting = self._expected.pop(resolved.digest, {})
        for each in {**waiting, resolved.reference: resolved}.values():
            await self._put(each)

    async def _put(self, resolved: Resolved) -> None:
        """A reference that is pinned to this very digest is no name, unless there is none other. The name of an upload
        stays its own, also when those whom it is not for pull by the same name."""
        known = self._index.name(resolved.reference)
        if known is not None and known.imported and not resolved.imported and known.digest != resolved.digest:
            return
        if not _is_pinned(resolved) or not self._index.names_of(resolved.digest):
            given_at = self._given_at.pop((resolved.reference, resolved.digest), 0.0)
            known = self._index.name(resolved.reference)
            if known is not None and known.digest == resolved.digest:
                given_at = max(given_at, known.at)
            name = ImageName(
                reference=resolved.reference, digest=resolved.digest, imported=resolved.imported, at=given_at
            )
            await self._index.put_name(name)


def _is_pinned(resolved: Resolved) -> bool:
    return resolved.reference.endswith(resolved.digest)
