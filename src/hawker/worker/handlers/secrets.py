"""Answers about the secrets of apps."""

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.secret import (
    DELETE_SECRET,
    GET_SECRET,
    LIST_SECRETS,
    SET_SECRET,
    UPDATE_SECRETS,
    AppSecret,
    AppSecrets,
    SecretDeleted,
    SecretParams,
    SecretSet,
    SecretsQuery,
    SecretsUpdated,
    SetSecretRequest,
    UpdateSecretsRequest,
)
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.permission import Action, Attempt
from hawker.record.app import SecretRecord
from hawker.secret.secrets import Secrets
from hawker.store.contract import Store
from hawker.worker.apps import AppTable


class SecretHandlers:
    def __init__(self, store: Store, secrets: Secrets, apps: AppTable) -> None:
        self._store = store
        self._apps = apps
        self._secrets = secrets

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_SECRETS, self.list)
        handlers.on(UPDATE_SECRETS, self.update)
        handlers.on(GET_SECRET, self.get)
        handlers.on(SET_SECRET, self.set)
        handlers.on(DELETE_SECRET, self.delete)

    async def list(self, call: Call[AppParams, SecretsQuery, None]) -> AppSecrets:
        app = call.params.app_name
        shown = self._shows(app, call.query, call.grant)
        return AppSecrets(secrets=tuple(self._view(app, each, shown=shown) for each in self._secrets.list(app)))

    async def get(self, call: Call[SecretParams, SecretsQuery, None]) -> AppSecret:
        app = call.params.app_name
        shown = self._shows(app, call.query, call.grant)
        return self._view(app, self._secrets.get(app, call.params.secret_name), shown=shown)

    async def update(self, call: Call[AppParams, NoQuery, UpdateSecretsRequest]) -> SecretsUpdated:
        app, values = call.params.app_name, call.body.values
        version = await self._secrets.set(app, values)
        changed = [self._view(app, each) for each in self._secrets.list(app) if values.get(each.name) is not None]
        return SecretsUpdated(secrets=tuple(changed), version=version, Version=version)

    async def set(self, call: Call[SecretParams, NoQuery, SetSecretRequest]) -> SecretSet:
        app, name = call.params.app_name, call.params.secret_name
        version = await self._secrets.set(app, {name: call.body.value})
        record = self._secrets.get(app, name)
        return SecretSet(
            name=record.name,
            digest=record.digest,
            created_at=instant(record.created_at),
            updated_at=instant(record.updated_at),
            version=version,
            Version=version,
        )

    async def delete(self, call: Call[SecretParams, NoQuery, None]) -> SecretDeleted:
        version = await self._secrets.delete(call.params.app_name, call.params.secret_name)
        return SecretDeleted(version=version, Version=version)

    def _shows(self, app: str, query: SecretsQuery, grant: Grant) -> bool:
        """Whether to show values. Raises what keeps the caller from seeing anything."""
        store = self._store
        self._apps.get(store, app)
        self._secrets.check_version(store, app, max(query.min_version or 0, query.version or 0))
        if query.show_secrets:
            grant.check(Attempt(Action.CONTROL, app=app))
        return query.show_secrets

    def _view(self, app: str, record: SecretRecord, *, shown: bool = False) -> AppSecret:
        return AppSecret(
            name=record.name,
            digest=record.digest,
            created_at=instant(record.created_at),
            updated_at=instant(record.updated_at),
            value=self._secrets.value(app, record) if shown else None,
        )
