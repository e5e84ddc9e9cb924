"""Calls about the images that the node holds."""

from types import NoneType
from typing import Literal

import msgspec

from hawker.api.bodies import ImageInfo, ImageList, PruneAnswer, PruneRequest, PullEvent, PullRequest
from hawker.api.route import NoParams, NoQuery, Stream, Tag, Unary, Upload
from hawker.errors import NotFound, TooLarge, Unavailable, Unprocessable


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`reference` names the image; `format` is oci-archive, docker-archive or auto."""

    reference: str | None = None
    format: Literal["oci-archive", "docker-archive", "auto"] = "auto"


LIST_IMAGES = Unary(
    name="list_images",
    method="GET",
    path="/hawker/v1/images",
    params=NoParams,
    query=NoQuery,
    body=NoneType,
    response=ImageList,
    tag=Tag.IMAGES,
    summary="List images",
)

PULL_IMAGE = Stream(
    name="pull_image",
    method="POST",
    path="/hawker/v1/images/pull",
    params=NoParams,
    query=NoQuery,
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
    query=NoQuery,
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
    body=NoneType,
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
