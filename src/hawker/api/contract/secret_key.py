"""Bodies about the secret keys of an app. Bytes are base64, as clients send and read them."""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.contract.secret import SecretDeleted, SecretParams
from hawker.api.route import Tag, Unary
from hawker.errors import Fault, NotFound, WrongState
from hawker.permission import Action


class SecretKey(Answer, frozen=True, kw_only=True):
    """`public_key` only of a type that has one; the key itself never leaves the node."""

    name: str
    type: str
    created_at: datetime
    updated_at: datetime
    public_key: bytes | None = None


class SecretKeys(Answer, frozen=True, kw_only=True):
    secret_keys: tuple[SecretKey, ...]


class SetSecretKeyRequest(Request, frozen=True, kw_only=True):
    """`value` is a key made elsewhere; generating one takes only the `type`."""

    type: str
    value: bytes | None = None


class SecretKeySet(Answer, frozen=True, kw_only=True):
    """`Version` is the same as `version`, for clients of an older API."""

    name: str
    type: str
    created_at: datetime
    updated_at: datetime
    version: int
    Version: int
    public_key: bytes | None = None


class EncryptRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    associated_data: bytes | None = None


class Encrypted(Answer, frozen=True, kw_only=True):
    ciphertext: bytes


class DecryptRequest(Request, frozen=True, kw_only=True):
    ciphertext: bytes
    associated_data: bytes | None = None


class Decrypted(Answer, frozen=True, kw_only=True):
    plaintext: bytes


class SignRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes


class Signed(Answer, frozen=True, kw_only=True):
    signature: bytes


class VerifyRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    signature: bytes


# Calls about the secret keys of an app, and what can be done with them without ever having them.

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
