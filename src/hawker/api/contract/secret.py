"""Bodies about the secrets of an app. A value is shown only to who asks for it and may control the app."""

from datetime import datetime

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Fault, Forbidden, NotFound, WrongState
from hawker.permission import Action


class AppSecret(Answer, frozen=True, kw_only=True):
    """`digest` tells whether a value changed, and nothing else of it."""

    name: str
    digest: str
    created_at: datetime
    updated_at: datetime
    value: str | None = None


class AppSecrets(Answer, frozen=True, kw_only=True):
    secrets: tuple[AppSecret, ...]


class UpdateSecretsRequest(Request, frozen=True, kw_only=True):
    """All at once; null removes."""

    values: dict[str, str | None]


class SecretsUpdated(Answer, frozen=True, kw_only=True):
    """`Version` is the same, for clients of an older API."""

    secrets: tuple[AppSecret, ...]
    version: int
    Version: int


class SetSecretRequest(Request, frozen=True, kw_only=True):
    value: str


class SecretSet(Answer, frozen=True, kw_only=True):
    name: str
    digest: str
    created_at: datetime
    updated_at: datetime
    version: int
    Version: int


class SecretDeleted(Answer, frozen=True, kw_only=True):
    version: int
    Version: int


# Calls about the secrets of an app.


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
    response=SecretDeleted,
    tag=Tag.SECRETS,
    summary="Remove a secret",
    errors=(NotFound,),
    action=Action.WRITE,
)

SECRET_ROUTES = (LIST_SECRETS, UPDATE_SECRETS, GET_SECRET, SET_SECRET, DELETE_SECRET)
