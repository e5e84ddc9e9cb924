"""Calls about volumes and their snapshots."""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.bodies import (
    CreateVolumeRequest,
    ExtendVolumeAnswer,
    ExtendVolumeRequest,
    OrgVolumes,
    SnapshotCreated,
    UpdateVolumeRequest,
    Volume,
    VolumeSnapshot,
)
from hawker.api.bounds import PageLimit
from hawker.api.route import NoQuery, Page, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.api.routes.orgs import OrgParams
from hawker.errors import Conflict, NoRoom, NotFound, Unavailable, WrongState
from hawker.permission import Action

_ALL = "/v1/apps/{app_name}/volumes"
_ONE = f"{_ALL}/{{volume_id}}"


class VolumeParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    volume_id: str


class ListVolumesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A `summary` leaves out blocks and bytes. Without a `limit` the whole list is answered."""

    summary: bool = False
    limit: PageLimit | None = None
    cursor: str | None = None


class OrgVolumesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_after` is RFC 3339; `limit` at most 1000, which is also what it is without one; a `summary` leaves out
    blocks and bytes."""

    include_deleted: bool = False
    region: str | None = None
    state: tuple[str, ...] = ()
    summary: bool = False
    updated_after: datetime | None = None
    cursor: str | None = None
    limit: PageLimit | None = None


LIST_VOLUMES = Unary(
    name="list_volumes",
    method="GET",
    path=_ALL,
    params=AppParams,
    query=ListVolumesQuery,
    body=NoneType,
    response=Page[Volume],
    tag=Tag.VOLUMES,
    summary="List an app's volumes",
    errors=(NotFound,),
)

CREATE_VOLUME = Unary(
    name="create_volume",
    method="POST",
    path=_ALL,
    params=AppParams,
    query=NoQuery,
    body=CreateVolumeRequest,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Create a volume: empty, from a snapshot, or as a fork of another volume",
    errors=(NotFound, NoRoom, WrongState, Conflict, Unavailable),
    action=Action.CREATE,
    timeout_s=90.0,
)

GET_VOLUME = Unary(
    name="get_volume",
    method="GET",
    path=_ONE,
    params=VolumeParams,
    query=NoQuery,
    body=NoneType,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Show a volume",
    errors=(NotFound,),
)

UPDATE_VOLUME = Unary(
    name="update_volume",
    method="PUT",
    path=_ONE,
    params=VolumeParams,
    query=NoQuery,
    body=UpdateVolumeRequest,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Set daily snapshots of a volume and their retention",
    errors=(NotFound, WrongState),
)

DELETE_VOLUME = Unary(
    name="delete_volume",
    method="DELETE",
    path=_ONE,
    params=VolumeParams,
    query=NoQuery,
    body=NoneType,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Destroy a volume that no machine has; undelete works for a day",
    errors=(NotFound, Conflict, WrongState),
)

EXTEND_VOLUME = Unary(
    name="extend_volume",
    method="PUT",
    path=f"{_ONE}/extend",
    params=VolumeParams,
    query=NoQuery,
    body=ExtendVolumeRequest,
    response=ExtendVolumeAnswer,
    tag=Tag.VOLUMES,
    summary="Make a volume larger, also while a machine uses it",
    errors=(NotFound, NoRoom, Conflict, WrongState, Unavailable),
)

LIST_SNAPSHOTS = Unary(
    name="list_snapshots",
    method="GET",
    path=f"{_ONE}/snapshots",
    params=VolumeParams,
    query=NoQuery,
    body=NoneType,
    response=tuple[VolumeSnapshot, ...],
    tag=Tag.VOLUMES,
    summary="List a volume's snapshots",
    errors=(NotFound,),
)

CREATE_SNAPSHOT = Unary(
    name="create_snapshot",
    method="POST",
    path=f"{_ONE}/snapshots",
    params=VolumeParams,
    query=NoQuery,
    body=NoneType,
    response=SnapshotCreated,
    tag=Tag.VOLUMES,
    summary="Take a snapshot of a volume",
    errors=(NotFound, NoRoom, Conflict, WrongState, Unavailable),
    action=Action.WRITE,
)

UNDELETE_VOLUME = Unary(
    name="undelete_volume",
    method="POST",
    path="/hawker/v1/apps/{app_name}/volumes/{volume_id}/undelete",
    params=VolumeParams,
    query=NoQuery,
    body=NoneType,
    response=Volume,
    tag=Tag.VOLUMES,
    summary="Undelete a volume that was destroyed less than a day ago",
    errors=(NotFound, WrongState),
    action=Action.DELETE,  # who may destroy it may think again
)

LIST_ORG_VOLUMES = Unary(
    name="list_org_volumes",
    method="GET",
    path="/v1/orgs/{org_slug}/volumes",
    params=OrgParams,
    query=OrgVolumesQuery,
    body=NoneType,
    response=OrgVolumes,
    tag=Tag.VOLUMES,
    summary="List an organization's volumes over all its apps",
    guarded=False,  # those of the apps that the token may read
)

VOLUME_ROUTES = (
    LIST_VOLUMES,
    CREATE_VOLUME,
    GET_VOLUME,
    UPDATE_VOLUME,
    DELETE_VOLUME,
    EXTEND_VOLUME,
    LIST_SNAPSHOTS,
    CREATE_SNAPSHOT,
    UNDELETE_VOLUME,
    LIST_ORG_VOLUMES,
)
