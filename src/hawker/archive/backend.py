"""Where archives go: a directory, or a bucket of an S3 service. What a place is, and which one a setting means."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hawker.archive.bucket import bucket_of
from hawker.archive.directory import DirectoryBackend
from hawker.deferred import deferred
from hawker.errors import CannotStart

if TYPE_CHECKING:
    from hawker.archive import s3
else:
    s3 = deferred("hawker.archive.s3")


class ArchiveBackend(Protocol):
    """Every call raises `ArchiveRefused` when someone has to see to the place, and `Unavailable` when it may pass by
    itself.

    Writing the same key again replaces what is there, all at once: a reader sees the old or the new."""

    @property
    def name(self) -> str:
        """The directory or bucket as people know it."""

    async def check(self) -> None:
        """Write something small: whether `put` would work."""

    async def put(self, key: str, file: Path) -> None:
        """Writes a file under a key, durable when this returns."""

    async def put_new(self, key: str, file: Path) -> bool:
        """Writes a file as `put` does, but what is there stays: false then. Of several writers at once, one
        succeeds."""

    async def names(self, prefix: str, most: int) -> list[str]:
        """Keys that begin with `prefix`, a folder with its slash, in order. Raises `ArchiveDamaged` for more than
        `most`."""

    async def versions(self, prefix: str, most: int) -> dict[str, str | None]:
        """Keys as in `names`, in any order. The value of each is another one once something else is written under its
        key; None where the place does not tell."""

    async def size(self, key: str) -> int | None:
        """The number of bytes that are there under this key; None for no such key."""

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        """Write `target` anew; false when there is no such key. Raises `ArchiveDamaged` for more than `most_bytes`."""

    async def remove(self, key: str) -> None:
        """Removes what is under this key. What is not there is gone."""

    async def remove_drafts(self, before: float) -> int:
        """Removes what writers that were killed have left, and nobody has written to since then, in Unix seconds.
        Returns how many."""


def open_backend(
    setting: str, *, endpoint: str | None, region: str | None, environ: Mapping[str, str], base: Path
) -> ArchiveBackend:
    """`setting` is a path, from `base` unless it is absolute, or `s3://bucket/prefix`. Raises `CannotStart` for what is
    neither; whether the place is there is not asked. The S3 client is imported only when it is wanted."""
    if "://" not in setting:
        if not setting:
            raise CannotStart("setting refused: archive is empty; give a directory or s3://BUCKET/PREFIX")
        return DirectoryBackend(base / Path(setting).expanduser())
    bucket = bucket_of(setting, endpoint, region)
    return s3.S3Backend(bucket, environ)
