"""Bodies about the secrets of an app. A value is shown only to who asks for it and may control the app."""

from datetime import datetime

from hawker.api.bodies.body import Answer, Request


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
