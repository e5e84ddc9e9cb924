"""Calls about the secrets of an app."""

from types import NoneType

import msgspec

from hawker.api.bodies import (
    AppSecret,
    AppSecrets,
    SecretDeleted,
    SecretSet,
    SecretsUpdated,
    SetSecretRequest,
    UpdateSecretsRequest,
)
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import Fault, Forbidden, NotFound, WrongState
from hawker.permission import Action


class SecretParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    secret_name: str


class SecretsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Only from this `min_version` on, which clients also call `version`; with the values if `show_secrets`."""

    min_version: int | None = None
    version: int | None = None
    show_secrets: bool = False


LIST_SECRETS = Unary(
    name="list_secrets",
    method="GET",
    path="/v1/apps/{app_name}/secrets",
    params=AppParams,
    query=SecretsQuery,
    body=NoneType,
    response=AppSecrets,
    tag=Tag.SECRETS,
    summary="List an app's secrets",
    errors=(NotFound, WrongState, Forbidden, Fault),
)

UPDATE_SECRETS = Unary(
    name="update_secrets",
    method="POST",
    path="/v1/apps/{app_name}/secrets",
    params=AppParams,
    query=NoQuery,
    body=UpdateSecretsRequest,
    response=SecretsUpdated,
    tag=Tag.SECRETS,
    summary="Set and remove secrets, all at once",
    errors=(NotFound,),
)

GET_SECRET = Unary(
    name="get_secret",
    method="GET",
    path="/v1/apps/{app_name}/secrets/{secret_name}",
    params=SecretParams,
    query=SecretsQuery,
    body=NoneType,
    response=AppSecret,
    tag=Tag.SECRETS,
    summary="Show a secret",
    errors=(NotFound, WrongState, Forbidden, Fault),
)

SET_SECRET = Unary(
    name="set_secret",
    method="POST",
    path="/v1/apps/{app_name}/secrets/{secret_name}",
    params=SecretParams,
    query=NoQuery,
    body=SetSecretRequest,
    response=SecretSet,
    tag=Tag.SECRETS,
    summary="Set a secret",
    status=201,
    errors=(NotFound,),
)

DELETE_SECRET = Unary(
    name="delete_secret",
    method="DELETE",
    path="/v1/apps/{app_name}/secrets/{secret_name}",
    params=SecretParams,
    query=NoQuery,
    body=NoneType,
    response=SecretDeleted,
    tag=Tag.SECRETS,
    summary="Remove a secret",
    errors=(NotFound,),
    action=Action.WRITE,
)

SECRET_ROUTES = (LIST_SECRETS, UPDATE_SECRETS, GET_SECRET, SET_SECRET, DELETE_SECRET)
