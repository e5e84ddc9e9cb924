"""The bucket of an S3 service that a setting means."""

from urllib.parse import urlsplit

from hawker.errors import CannotStart
from hawker.value_object import ValueObject


class ArchiveBucket(ValueObject, frozen=True):
    """`endpoint` is the URL of a service that is not AWS's; `region` None for what the environment says."""

    name: str
    """The name of the bucket, as the service knows it."""
    prefix: str
    """The prefix of every key, without slashes around it; empty for the whole bucket."""
    endpoint: str | None = None
    region: str | None = None


def bucket_of(setting: str, endpoint: str | None, region: str | None) -> ArchiveBucket:
    """`setting` is `s3://bucket/prefix`. Raises `CannotStart` for anything else."""
    parts = urlsplit(setting)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise CannotStart(f"setting refused: archive is a directory or s3://BUCKET/PREFIX, not {setting!r}")
    segments = parts.path.strip("/").split("/")
    if "." in segments or ".." in segments or (len(segments) > 1 and "" in segments):
        raise CannotStart(f"setting refused: archive: the prefix of {setting!r} is no plain path")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise CannotStart(f"setting refused: archive_endpoint is a URL, not {endpoint!r}")
    return ArchiveBucket(name=parts.netloc, prefix="/".join(segments), endpoint=endpoint, region=region)
