"""Calls about the secret keys of an app, and what can be done with them without ever having them."""

from types import NoneType

import msgspec

from hawker.api.bodies import (
    Decrypted,
    DecryptRequest,
    Encrypted,
    EncryptRequest,
    SecretDeleted,
    SecretKey,
    SecretKeys,
    SecretKeySet,
    SetSecretKeyRequest,
    Signed,
    SignRequest,
    VerifyRequest,
)
from hawker.api.route import NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.api.routes.secrets import SecretParams
from hawker.errors import Fault, NotFound, WrongState
from hawker.permission import Action

_ALL = "/v1/apps/{app_name}/secretkeys"
_ONE = f"{_ALL}/{{secret_name}}"


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Only from this `min_version` of the app's secrets on, which clients also call `version`."""

    min_version: int | None = None
    version: int | None = None


class ListKeysQuery(msgspec.Struct, frozen=True, kw_only=True):
    """As `KeyQuery`; only keys of these `types`."""

    min_version: int | None = None
    version: int | None = None
    types: tuple[str, ...] = ()


LIST_SECRET_KEYS = Unary(
    name="list_secret_keys",
    method="GET",
    path=_ALL,
    params=AppParams,
    query=ListKeysQuery,
    body=NoneType,
    response=SecretKeys,
    tag=Tag.SECRETS,
    summary="List an app's secret keys",
    errors=(NotFound, WrongState),
)

GET_SECRET_KEY = Unary(
    name="get_secret_key",
    method="GET",
    path=_ONE,
    params=SecretParams,
    query=KeyQuery,
    body=NoneType,
    response=SecretKey,
    tag=Tag.SECRETS,
    summary="Show a secret key's type and public part",
    errors=(NotFound, WrongState),
)

SET_SECRET_KEY = Unary(
    name="set_secret_key",
    method="POST",
    path=_ONE,
    params=SecretParams,
    query=NoQuery,
    body=SetSecretKeyRequest,
    response=SecretKeySet,
    tag=Tag.SECRETS,
    summary="Store a key that was made elsewhere",
    status=201,
    errors=(NotFound,),
)

GENERATE_SECRET_KEY = Unary(
    name="generate_secret_key",
    method="POST",
    path=f"{_ONE}/generate",
    params=SecretParams,
    query=NoQuery,
    body=SetSecretKeyRequest,
    response=SecretKeySet,
    tag=Tag.SECRETS,
    summary="Make a random key",
    status=201,
    errors=(NotFound,),
)

DELETE_SECRET_KEY = Unary(
    name="delete_secret_key",
    method="DELETE",
    path=_ONE,
    params=SecretParams,
    query=NoQuery,
    body=NoneType,
    response=SecretDeleted,
    tag=Tag.SECRETS,
    summary="Remove a secret key",
    errors=(NotFound,),
    action=Action.WRITE,
)

ENCRYPT = Unary(
    name="encrypt",
    method="POST",
    path=f"{_ONE}/encrypt",
    params=SecretParams,
    query=KeyQuery,
    body=EncryptRequest,
    response=Encrypted,
    tag=Tag.SECRETS,
    summary="Encrypt with a secret key",
    errors=(NotFound, WrongState, Fault),
    action=Action.CONTROL,
)

DECRYPT = Unary(
    name="decrypt",
    method="POST",
    path=f"{_ONE}/decrypt",
    params=SecretParams,
    query=KeyQuery,
    body=DecryptRequest,
    response=Decrypted,
    tag=Tag.SECRETS,
    summary="Decrypt with a secret key",
    errors=(NotFound, WrongState, Fault),
    action=Action.CONTROL,
)

SIGN = Unary(
    name="sign",
    method="POST",
    path=f"{_ONE}/sign",
    params=SecretParams,
    query=KeyQuery,
    body=SignRequest,
    response=Signed,
    tag=Tag.SECRETS,
    summary="Sign with a secret key",
    errors=(NotFound, WrongState, Fault),
    action=Action.CONTROL,
)

VERIFY = Unary(
    name="verify",
    method="POST",
    path=f"{_ONE}/verify",
    params=SecretParams,
    query=KeyQuery,
    body=VerifyRequest,
    response=NoneType,
    tag=Tag.SECRETS,
    summary="Check a signature with a secret key; 400 when it is not the key's",
    status=204,
    errors=(NotFound, WrongState, Fault),
    action=Action.CONTROL,
)

SECRET_KEY_ROUTES = (
    LIST_SECRET_KEYS,
    GET_SECRET_KEY,
    SET_SECRET_KEY,
    GENERATE_SECRET_KEY,
    DELETE_SECRET_KEY,
    ENCRYPT,
    DECRYPT,
    SIGN,
    VERIFY,
)
