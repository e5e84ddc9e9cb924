"""Bodies about releases: what an app was to run, in the order in which it was told. Kept at the app's home."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from hawker.api.bounds import ReleasesLimit
from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Conflict, NotFound, Unprocessable
from hawker.permission import Action


class Release(Answer, frozen=True, kw_only=True):
    """One release of an app. `id` is APP.VERSION. `version` counts from 1 in an app. `status` is pending, running,
    complete, failed or interrupted, or for a deploy of the node rolling_back or rolled_back. `definition` is the app's
    config as the client sent it, null without one; `user` is the name of the token that made it."""

    id: str
    app_name: str
    """The name of the app that has the release."""
    version: int
    status: str
    strategy: str
    """The strategy of the deploy, as the release's maker named it; may be empty."""
    image: str
    """The reference of the image, as the release's maker named it; may be empty."""
    pinned: str = ""
    """The reference of the image with the digest that it had when the deploy was accepted, which a tag may not have any
    more. Empty for a release that a client drove by itself; an image without a digest is named as in `image`."""
    description: str
    """A text for people, at most 2,000 characters; may be empty."""
    user: str
    created_at: datetime
    updated_at: datetime
    definition: Any = None


class ReleaseList(Answer, frozen=True, kw_only=True):
    """The app's releases, newest first."""

    releases: tuple[Release, ...]


class CreateReleaseRequest(Request, frozen=True, kw_only=True):
    """`definition` is a JSON object of at most 256 KiB, `image` a reference of at most 2,000 characters. `strategy` and
    `description` are words for whoever reads the list."""

    image: str = ""
    strategy: str = ""
    description: str = ""
    definition: dict[str, Any] | None = None


ReleaseMove: TypeAlias = Literal["running", "complete", "failed", "interrupted"]


class UpdateReleaseRequest(Request, frozen=True, kw_only=True):
    """The new `status` of the release. A release that has ended stays as it ended."""

    status: ReleaseMove


# Calls about releases.


class ReleaseParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The name of the app that has the release."""
    version: str
    """The release's number, 1 or more."""


class ListReleasesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` is at most 100, of the 200 newest, which are kept; `status` selects releases in this state."""

    limit: ReleasesLimit = 25
    status: str | None = None


_ALL = "/hawker/v1/apps/{app_name}/releases"

LIST_RELEASES = Unary(
    name="list_releases",
    method="GET",
    path=_ALL,
    params=AppParams,
    query=ListReleasesQuery,
    response=ReleaseList,
    tag=Tag.APPS,
    summary="List an app's releases",
    errors=(NotFound,),
)

CREATE_RELEASE = Unary(
    name="create_release",
    method="POST",
    path=_ALL,
    params=AppParams,
    body=CreateReleaseRequest,
    response=Release,
    tag=Tag.APPS,
    summary="Record what an app is to run from now on",
    status=201,
    errors=(NotFound, Unprocessable),
)

UPDATE_RELEASE = Unary(
    name="update_release",
    method="PATCH",
    path=f"{_ALL}/{{version}}",
    params=ReleaseParams,
    body=UpdateReleaseRequest,
    response=Release,
    tag=Tag.APPS,
    summary="Record where a release has come to",
    errors=(NotFound, Conflict),
    action=Action.WRITE,
)

RELEASE_ROUTES = (LIST_RELEASES, CREATE_RELEASE, UPDATE_RELEASE)
