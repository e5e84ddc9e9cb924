"""Where archives go: a directory, or a bucket of an S3 service. What a place is, and which one a setting means."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import urlsplit

from hawker.archive.directory import DirectoryPlace
from hawker.errors import CannotStart


class ArchivePlace(Protocol):
    """Every call raises `Refused` when someone has to see to the place, and `Unavailable` when it may pass by itself.

    Writing the same key again replaces what is there, all at once: a reader sees the old or the new."""

    @property
    def name(self) -> str:
        """As people know it."""

    async def check(self) -> None:
        """Write something small: whether `put` would work."""

    async def put(self, key: str, file: Path) -> None:
        """Durable when it returns."""

    async def size(self, key: str) -> int | None:
        """How many bytes are there under this key; None for no such key."""

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        """Write `target` anew; false when there is no such key. Raises `Damaged` for more than `most_bytes`."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`endpoint` is the URL of a service that is not AWS's; `region` None for what the environment says."""

    name: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None


def open_place(
    setting: str, *, endpoint: str | None, region: str | None, environ: Mapping[str, str], base: Path
) -> ArchivePlace:
    """`setting` is a path, from `base` unless it is absolute, or `s3://bucket/prefix`. Raises `CannotStart` for what is
    neither; whether the place is there is not asked. The S3 client is imported only when it is wanted."""
    if "://" not in setting:
        if not setting:
            raise CannotStart("setting refused: archive is empty; give a directory or s3://BUCKET/PREFIX")
        return DirectoryPlace(base / Path(setting).expanduser())
    bucket = bucket_of(setting, endpoint, region)
    s3 = import_module("hawker.archive.s3")
    return cast(ArchivePlace, s3.S3Place(bucket, environ))


def bucket_of(setting: str, endpoint: str | None, region: str | None) -> Bucket:
    """Raises `CannotStart`."""
    parts = urlsplit(setting)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise CannotStart(f"setting refused: archive is a directory or s3://BUCKET/PREFIX, not {setting!r}")
    segments = parts.path.strip("/").split("/")
    if "." in segments or ".." in segments or (len(segments) > 1 and "" in segments):
        raise CannotStart(f"setting refused: archive: the prefix of {setting!r} is no plain path")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise CannotStart(f"setting refused: archive_endpoint is a URL, not {endpoint!r}")
    return Bucket(name=parts.netloc, prefix="/".join(segments), endpoint=endpoint, region=region)
