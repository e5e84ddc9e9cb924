"""Bodies about the images that a node holds."""

from datetime import datetime
from typing import Literal

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Stream, Tag, Unary, Upload
from hawker.errors import NotFound, TooLarge, Unavailable, Unprocessable


class ImageInfo(Answer, frozen=True, kw_only=True):
    """An image on the node. `references` are the names it was pulled by; `machines` how many use it."""

    digest: str
    references: tuple[str, ...]
    size_bytes: int
    layers: int
    machines: int
    pulled_at: datetime
    used_at: datetime | None = None


class ImageList(Answer, frozen=True, kw_only=True):
    images: tuple[ImageInfo, ...]


class PullRequest(Request, frozen=True, kw_only=True):
    reference: str
    username: str | None = None
    password: str | None = None


class PullEvent(Answer, frozen=True, kw_only=True):
    """Progress of a pull. `stage` is resolving, downloading, unpacking or done; bytes are of `layer`, or of the whole
    image when there is none. The last event has the image's `digest`."""

    stage: str
    layer: str | None = None
    done_bytes: int = 0
    total_bytes: int = 0
    digest: str | None = None


class PruneRequest(Request, frozen=True, kw_only=True):
    """Remove what no machine uses, or with `unused_for_s` only what was not used for so long."""

    unused_for_s: float | None = None


class PruneAnswer(Answer, frozen=True, kw_only=True):
    removed: tuple[str, ...]
    freed_bytes: int


# Calls about the images that the node holds.


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`reference` names the image; `format` is oci-archive, docker-archive or auto."""

    reference: str | None = None
    format: Literal["oci-archive", "docker-archive", "auto"] = "auto"


LIST_IMAGES = Unary(
    name="list_images",
    method="GET",
    path="/hawker/v1/images",
    params=NoParams,
    response=ImageList,
    tag=Tag.IMAGES,
    summary="List images",
)

PULL_IMAGE = Stream(
    name="pull_image",
    method="POST",
    path="/hawker/v1/images/pull",
    params=NoParams,
    body=PullRequest,
    response=PullEvent,
    tag=Tag.IMAGES,
    summary="Pull an image and follow its progress",
    errors=(NotFound, Unavailable),
    strict=True,
)

PRUNE_IMAGES = Unary(
    name="prune_images",
    method="POST",
    path="/hawker/v1/images/prune",
    params=NoParams,
    body=PruneRequest,
    response=PruneAnswer,
    tag=Tag.IMAGES,
    summary="Remove images that no machine uses",
    body_optional=True,
    strict=True,
    timeout_s=300.0,
)

IMPORT_IMAGE = Upload(
    name="import_image",
    method="POST",
    path="/hawker/v1/images/import",
    params=NoParams,
    query=ImportQuery,
    response=ImageInfo,
    tag=Tag.IMAGES,
    summary="Import an image from an archive",
    errors=(TooLarge, Unprocessable, Unavailable),
    timeout_s=3600.0,
)

IMAGE_ROUTES = (
    LIST_IMAGES,
    PULL_IMAGE,
    PRUNE_IMAGES,
    IMPORT_IMAGE,
)
