"""Calls about a machine's metadata. They need no lease and make no new version."""

from types import NoneType

import msgspec

from hawker.api.bodies import MetadataValue, SetMetadataRequest, UpdateMetadataRequest
from hawker.api.route import Alias, NoQuery, Tag, Unary
from hawker.api.routes.machines import MachineParams
from hawker.errors import NotFound, WrongState
from hawker.permission import Action


class MetadataKeyParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    machine_id: str
    key: str


LIST_METADATA = Unary(
    name="list_metadata",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata",
    params=MachineParams,
    query=NoQuery,
    body=NoneType,
    response=dict[str, str],
    tag=Tag.METADATA,
    summary="Show a machine's metadata",
    errors=(NotFound,),
)

UPDATE_METADATA = Unary(
    name="update_metadata",
    method="PATCH",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata",
    params=MachineParams,
    query=NoQuery,
    body=UpdateMetadataRequest,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Set and remove several keys",
    status=204,
    errors=(NotFound, WrongState),
    aliases=(Alias("PUT", "/v1/apps/{app_name}/machines/{machine_id}/metadata"),),
)

GET_METADATA = Unary(
    name="get_metadata",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    query=NoQuery,
    body=NoneType,
    response=MetadataValue,
    tag=Tag.METADATA,
    summary="Show one key",
    errors=(NotFound,),
)

SET_METADATA = Unary(
    name="set_metadata",
    method="POST",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    query=NoQuery,
    body=SetMetadataRequest,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Set one key",
    status=204,
    errors=(NotFound, WrongState),
    action=Action.WRITE,
)

DELETE_METADATA = Unary(
    name="delete_metadata",
    method="DELETE",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata/{key}",
    params=MetadataKeyParams,
    query=NoQuery,
    body=NoneType,
    response=NoneType,
    tag=Tag.METADATA,
    summary="Remove one key",
    status=204,
    errors=(NotFound, WrongState),
)

METADATA_ROUTES = (
    LIST_METADATA,
    UPDATE_METADATA,
    GET_METADATA,
    SET_METADATA,
    DELETE_METADATA,
)
