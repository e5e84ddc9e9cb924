"""Bodies about the secrets of an app and its secret keys. A value is shown only to who asks for it and may control the
app. Bytes of keys are base64, as clients send and read them.
"""

from datetime import datetime
from types import NoneType

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Request
from hawker.api.route import Tag, Unary
from hawker.errors import Fault, Forbidden, NotFound, WrongState
from hawker.permission import Action


class AppSecret(Answer, frozen=True, kw_only=True):
    """`digest` tells whether a value changed, and nothing else of it."""

    name: str
    """The name of the secret, which is the name of the environment variable."""
    digest: str
    created_at: datetime
    updated_at: datetime
    value: str | None = None
    """The secret's value, if the call asked for values, which needs control of the app; null otherwise."""


class AppSecrets(Answer, frozen=True, kw_only=True):
    secrets: tuple[AppSecret, ...]


class UpdateSecretsRequest(Request, frozen=True, kw_only=True):
    """New values of several secrets, which change all at once."""

    values: dict[str, str | None]
    """The new value of each secret, by the secret's name; null removes the secret."""


class SecretsUpdated(Answer, frozen=True, kw_only=True):
    """The secrets that the call set. `Version` is the value of `version` once more, for clients of an older API."""

    secrets: tuple[AppSecret, ...]
    version: int
    """The version of the app's secrets after the call, 1 or more; it rises by one with each change."""
    Version: int


class SetSecretRequest(Request, frozen=True, kw_only=True):
    value: str
    """The secret's value, any text; machines get it with their next version."""


class SecretSet(Answer, frozen=True, kw_only=True):
    name: str
    """The name of the secret, which is the name of the environment variable."""
    digest: str
    """A digest of the value: it tells whether the value changed, and nothing else of it."""
    created_at: datetime
    updated_at: datetime
    version: int
    """The version of the app's secrets after the call, 1 or more; it rises by one with each change."""
    Version: int
    """The value of `version` once more, for clients of an older API."""


class SecretDeleted(Answer, frozen=True, kw_only=True):
    version: int
    """The version of the app's secrets after the call, 1 or more; it rises by one with each change."""
    Version: int
    """The value of `version` once more, for clients of an older API."""


# Calls about the secrets of an app.


class SecretParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The app that has the secret."""
    secret_name: str
    """The secret's name, which is the name of the variable in machines."""


class SecretsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`min_version` is the least version of the app's secrets that the node must know, else the call fails (409);
    clients also call it `version`. With `show_secrets` the answer has the values."""

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


class SecretKey(Answer, frozen=True, kw_only=True):
    """`public_key` only of a type that has one; the key itself never leaves the node."""

    name: str
    """The name of the key, unique among the app's keys."""
    type: str
    """The type of the key, which says what it can do: a word of the table in docs/secrets.md."""
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
    """The key that the call stored. `version` is the version of the app's secrets after it; `Version` is its value once
    more, for clients of an older API."""

    name: str
    """The name of the key, unique among the app's keys."""
    type: str
    """The type of the key, which says what it can do: a word of the table in docs/secrets.md."""
    created_at: datetime
    updated_at: datetime
    version: int
    Version: int
    public_key: bytes | None = None
    """The public half of the key, as base64; null for a type that has none."""


class EncryptRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    """Bytes that are to be encrypted, as base64."""
    associated_data: bytes | None = None
    """Bytes that decrypting must show again, as base64; the ciphertext does not have them."""


class Encrypted(Answer, frozen=True, kw_only=True):
    ciphertext: bytes
    """The encrypted bytes with their nonce and what proves them whole, as base64."""


class DecryptRequest(Request, frozen=True, kw_only=True):
    ciphertext: bytes
    """The encrypted bytes, as `ciphertext` of the answer that encrypted them."""
    associated_data: bytes | None = None
    """The bytes that were given when it was encrypted, as base64; absent: none were given."""


class Decrypted(Answer, frozen=True, kw_only=True):
    plaintext: bytes
    """The decrypted bytes, as base64."""


class SignRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    """Bytes that are to be signed, as base64."""


class Signed(Answer, frozen=True, kw_only=True):
    signature: bytes
    """The signature, as base64."""


class VerifyRequest(Request, frozen=True, kw_only=True):
    plaintext: bytes
    """Bytes that were signed, as base64."""
    signature: bytes
    """The signature, as base64; one that does not fit the bytes is an error."""


# Calls about the secret keys of an app, and what can be done with them without ever having them.

_ALL = "/v1/apps/{app_name}/secretkeys"
_ONE = f"{_ALL}/{{secret_name}}"


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`min_version` is the least version of the app's secrets that the node must know, else the call fails (409);
    clients also call it `version`."""

    min_version: int | None = None
    version: int | None = None


class ListKeysQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys are asked for: with `types` only keys of these types."""

    min_version: int | None = None
    """The least version of the app's secrets that the node must know; else the call fails (409)."""
    version: int | None = None
    """Another name of `min_version`; if both are given, the greater one counts."""
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
