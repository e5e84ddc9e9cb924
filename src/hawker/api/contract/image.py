"""Bodies about the images that a node holds, and about registries: who an organization is there."""

from datetime import datetime
from types import NoneType
from typing import Annotated, Literal

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.org import OrgParams
from hawker.api.route import NoParams, Stream, Tag, Unary, Upload
from hawker.errors import NotFound, OverShare, TooLarge, Unavailable, Unprocessable
from hawker.permission import Action


class ImageInfo(Answer, frozen=True, kw_only=True):
    """An image on the node. `references` are the names it was pulled by; `machines` how many use it."""

    digest: str
    """The digest of the image's manifest for the node's platform: `sha256:` and 64 hexadecimal digits."""
    references: tuple[str, ...]
    size_bytes: int
    """Bytes of all layers of the image together, compressed."""
    layers: int
    """How many layers the image has, 0 or more."""
    machines: int
    pulled_at: datetime
    used_at: datetime | None = None


class ImageList(Answer, frozen=True, kw_only=True):
    images: tuple[ImageInfo, ...]


class PullRequest(Request, frozen=True, kw_only=True):
    """The node pulls the image with the login of `org` at its registry, `personal` unless told; or with the login that
    is given, which is then kept as that. `app` stands for its organization. The organization may use the image then; an
    image that a registry shows to anybody is everybody's."""

    reference: str
    """The image's reference, as a config names an image."""
    org: str | None = None
    username: str | None = None
    """The user name at the registry; absent or empty: the login that is kept is used."""
    password: str | None = None
    """The password or access token at the registry; no answer shows it."""
    app: str | None = None


class PullEvent(Answer, frozen=True, kw_only=True):
    """Progress of a pull or a push. `stage` is resolving, downloading, unpacking, building (the block image), uploading
    or done; bytes are
    of `layer`, or of the whole image when there is none. The last event has the image's `digest`."""

    stage: str
    layer: str | None = None
    done_bytes: int = 0
    """Bytes that are done, 0 to `total_bytes`."""
    total_bytes: int = 0
    """Bytes that there are to do; 0 while that is not known."""
    digest: str | None = None


class PushRequest(Request, frozen=True, kw_only=True):
    """The image `reference` of the node goes to a registry as `to`, as itself unless told, with the login of `org`
    there, `personal` unless told."""

    reference: str
    to: str | None = None
    org: str | None = None


class PruneRequest(Request, frozen=True, kw_only=True):
    """Remove what no machine uses, or with `unused_for_s` only what was not used for so long. With `digests` (64 at
    most) only these images."""

    unused_for_s: float | None = None
    digests: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] | None = None


class PruneAnswer(Answer, frozen=True, kw_only=True):
    removed: tuple[str, ...]
    """The digests of the images that were removed."""
    freed_bytes: int
    """Bytes of the node's disk that are free again."""


class ResolveImageRequest(Request, frozen=True, kw_only=True):
    reference: str
    """The image's reference, as a config names an image."""


class ResolvedImage(Answer, frozen=True, kw_only=True):
    """What a reference means now: `digest` pins it for the node's platform, `size_bytes` is of all layers, compressed.
    `registry` is empty for an image that is from none."""

    reference: str
    """The reference that was asked for, with its registry and tag filled in."""
    registry: str
    repository: str
    """The image's path at the registry, or its name where it is from none."""
    tag: str
    """The tag of the reference; empty for a reference by digest alone."""
    digest: str
    size_bytes: int


# Calls about the images that the node holds.


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`reference` names the image; `format` is oci-archive, docker-archive or auto; `org` is the one organization that
    may use it, by default all may."""

    reference: str | None = None
    org: str | None = None
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

PUSH_IMAGE = Stream(
    name="push_image",
    method="POST",
    path="/hawker/v1/images/push",
    params=NoParams,
    body=PushRequest,
    response=PullEvent,
    tag=Tag.IMAGES,
    summary="Push an image to a registry and follow its progress",
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

PIECE_BYTES = 4 << 20
"""The most of a blob in one answer."""

_PIECE_S = 30.0


class BlobParams(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    """The digest of a layer, config or manifest: `sha256:` and 64 hexadecimal digits."""


class PieceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`count` bytes from `offset` on, or as many as there are; at most 4 MiB. Those that `org` may have: an
    organization, or `*` for what is everybody's."""

    org: str = "*"
    offset: int = 0
    count: int = PIECE_BYTES


HAND_BLOB = Unary(
    name="hand_blob",
    method="GET",
    path="/internal/v1/blobs/{digest}",
    params=BlobParams,
    query=PieceQuery,
    response=bytes,
    tag=Tag.IMAGES,
    summary="Hand a piece of an image's manifest, config or layer to another node",
    errors=(NotFound, OverShare, Unprocessable),
    timeout_s=_PIECE_S,
    media="application/octet-stream",
)

IMAGE_PEER_ROUTES = (HAND_BLOB,)

RESOLVE_IMAGE = Unary(
    name="resolve_image",
    method="POST",
    path="/hawker/v1/apps/{app_name}/image",
    params=AppParams,
    body=ResolveImageRequest,
    response=ResolvedImage,
    tag=Tag.IMAGES,
    summary="Ask what an image's name means now",
    errors=(NotFound, Unavailable),
    action=Action.READ,
    timeout_s=90.0,
)

IMAGE_ROUTES = (
    RESOLVE_IMAGE,
    LIST_IMAGES,
    PULL_IMAGE,
    PUSH_IMAGE,
    PRUNE_IMAGES,
    IMPORT_IMAGE,
)


class LoginRequest(Request, frozen=True, kw_only=True):
    """A user name and a password or access token. `realm` is a host of another domain that may have the password too,
    as token server. With `unchecked` the registry is not asked whether it takes them."""

    username: str
    """The user name at the registry, 1 to 255 characters without a colon."""
    password: str
    """The password or access token at the registry, 1 to 16384 characters; no answer shows it."""
    realm: str | None = None
    unchecked: bool | None = None


class RegistryLogin(Answer, frozen=True, kw_only=True):
    """A login without its password. `nodes` are those that have it."""

    registry: str
    """The host name of the registry, with its port where one was named."""
    username: str
    """The user name at the registry."""
    at: datetime
    by: str = ""
    """The name of the token that set it."""
    nodes: tuple[str, ...] = ()


class RegistryLoginList(Answer, frozen=True, kw_only=True):
    logins: tuple[RegistryLogin, ...]


class SealedLogin(Answer, frozen=True, kw_only=True):
    """A login, sealed under a key that only nodes of the cluster have."""

    sealed: bytes
    """The login as sealed bytes; no client gets it."""


class RegistryParams(msgspec.Struct, frozen=True, kw_only=True):
    """`registry` is HOST or HOST:PORT."""

    org_slug: str
    """The organization's slug: images for its machines are pulled with the login."""
    registry: str


_TIMEOUT_S = 60.0
_PEER_TIMEOUT_S = 5.0

LIST_LOGINS = Unary(
    name="list_registry_logins",
    method="GET",
    path="/hawker/v1/orgs/{org_slug}/registries",
    params=OrgParams,
    response=RegistryLoginList,
    tag=Tag.IMAGES,
    summary="List an organization's logins at registries",
    guarded=False,
)

PUT_LOGIN = Unary(
    name="put_registry_login",
    method="PUT",
    path="/hawker/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    body=LoginRequest,
    response=RegistryLogin,
    tag=Tag.IMAGES,
    summary="Log an organization in at a registry",
    errors=(Unavailable, Unprocessable),
    guarded=False,
    strict=True,
    timeout_s=_TIMEOUT_S,
)

DELETE_LOGIN = Unary(
    name="delete_registry_login",
    method="DELETE",
    path="/hawker/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    response=NoneType,
    tag=Tag.IMAGES,
    summary="Log an organization out of a registry",
    errors=(NotFound, Unavailable, Unprocessable),
    guarded=False,
)

REGISTRY_ROUTES = (LIST_LOGINS, PUT_LOGIN, DELETE_LOGIN)

HAND_LOGIN = Unary(
    name="hand_registry_login",
    method="GET",
    path="/internal/v1/orgs/{org_slug}/registries/{registry}",
    params=RegistryParams,
    response=SealedLogin,
    tag=Tag.IMAGES,
    summary="Hand an organization's login at a registry to a node that pulls for it",
    errors=(NotFound,),
    timeout_s=_PEER_TIMEOUT_S,
)

REGISTRY_PEER_ROUTES = (HAND_LOGIN,)
