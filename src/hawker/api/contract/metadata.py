"""Bodies about a machine's metadata."""

from types import NoneType

import msgspec

from hawker.api.contract.body import Answer, Request
from hawker.api.contract.machine import MachineParams
from hawker.api.route import Alias, Tag, Unary
from hawker.errors import NotFound, WrongState
from hawker.permission import Action


class UpdateMetadataRequest(Request, frozen=True, kw_only=True):
    """Null or "" removes a key; keys that are not named stay. A stale `machine_version` is refused."""

    metadata: dict[str, str | None] | None = None
    machine_version: str | None = None
    updated_at: str | None = None


class SetMetadataRequest(Request, frozen=True, kw_only=True):
    value: str
    updated_at: str | None = None


class MetadataValue(Answer, frozen=True, kw_only=True):
    value: str


# Calls about a machine's metadata. They need no lease and make no new version.


class MetadataKeyParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    machine_id: str
    key: str


LIST_METADATA = Unary(
    name="list_metadata",
    method="GET",
    path="/v1/apps/{app_name}/machines/{machine_id}/metadata",
    params=MachineParams,
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
