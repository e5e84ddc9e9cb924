"""Files that clients upload for the machines of an app, because a config has no room for them."""

from typing import Annotated

import msgspec

from hawker.api.contract.body import Answer
from hawker.api.contract.image import PIECE_BYTES
from hawker.api.route import Tag, Unary, Upload
from hawker.config.process_rules import MAX_UPLOAD_BYTES
from hawker.errors import NoRoom, NotFound, NotServed, OverShare, QuotaExceeded, TooLarge, Unprocessable


class AppFileParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app whose machines may have the file."""
    digest: str
    """The content's digest, `sha256:` and 64 hexadecimal digits; what is sent must have it."""


class AppFileQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`size` is how many bytes come, and has to be said."""

    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_UPLOAD_BYTES)] | None = None


class AppFile(Answer, frozen=True, kw_only=True):
    """An uploaded file: `config.files` names it by its `digest` and its `size` in bytes. It goes when no machine's
    config has named it for an hour."""

    digest: str
    size: int


GET_APP_FILE = Unary(
    name="get_app_file",
    method="GET",
    path="/hawker/v1/apps/{app_name}/files/{digest}",
    params=AppFileParams,
    response=AppFile,
    tag=Tag.APPS,
    summary="Ask whether a file was uploaded for an app's machines",
    errors=(NotFound, NotServed, Unprocessable),
)

PUT_APP_FILE = Upload(
    name="put_app_file",
    method="PUT",
    path="/hawker/v1/apps/{app_name}/files/{digest}",
    params=AppFileParams,
    query=AppFileQuery,
    response=AppFile,
    tag=Tag.APPS,
    summary="Upload a file for an app's machines",
    errors=(NotFound, NotServed, NoRoom, OverShare, QuotaExceeded, TooLarge, Unprocessable),
    timeout_s=3600.0,
)

APP_FILE_ROUTES = (GET_APP_FILE, PUT_APP_FILE)


class HandedFileParams(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one app, by the app's id: an app of the same name on another node may be another one."""

    app_id: str
    """The app's id, which no other app ever has."""
    digest: str
    """The content's digest, `sha256:` and 64 hexadecimal digits."""


class HandedFileQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`count` bytes from `offset` on, or as many as there are; at most 4 MiB."""

    offset: int = 0
    count: int = PIECE_BYTES


HAND_APP_FILE = Unary(
    name="hand_app_file",
    method="GET",
    path="/internal/v1/files/{app_id}/{digest}",
    params=HandedFileParams,
    query=HandedFileQuery,
    response=bytes,
    tag=Tag.APPS,
    summary="Hand a piece of an app's file to another node",
    errors=(NotFound, OverShare, Unprocessable),
    media="application/octet-stream",
)

APP_FILE_PEER_ROUTES = (HAND_APP_FILE,)
