"""Secret."""

import msgspec

from hawker.ids import AppName
from hawker.store.contract import Bucket


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret of an app. Times are Unix seconds."""

    name: str
    sealed: bytes
    digest: str
    created_at: float
    updated_at: float


class SecretKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret key of an app; `type` is a `keyring.KeyType`. Times are Unix seconds."""

    name: str
    type: str
    sealed: bytes
    public: bytes | None
    created_at: float
    updated_at: float


class SecretsVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the changes of an app's secrets, also over the app's end."""

    number: int


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that one version of a machine was given, by name, sealed as the app's are."""

    app: AppName
    sealed: dict[str, bytes]


SECRETS = Bucket("secrets", SecretRecord)  # app/name


SECRET_KEYS = Bucket("secret_keys", SecretKeyRecord)  # app/name


SECRETS_VERSIONS = Bucket("secrets_versions", SecretsVersion)  # app


PINNED = Bucket("machine_secrets", Pinned)  # machine id/version
