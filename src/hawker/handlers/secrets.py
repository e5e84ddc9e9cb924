"""Answers about the secrets of apps, and their secret keys."""

from typing import TYPE_CHECKING

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import instant
from hawker.api.contract.secret import (
    DECRYPT,
    DELETE_SECRET,
    DELETE_SECRET_KEY,
    ENCRYPT,
    GENERATE_SECRET_KEY,
    GET_SECRET,
    GET_SECRET_KEY,
    LIST_SECRET_KEYS,
    LIST_SECRETS,
    SET_SECRET,
    SET_SECRET_KEY,
    SIGN,
    UPDATE_SECRETS,
    VERIFY,
    AppSecret,
    AppSecrets,
    Decrypted,
    DecryptRequest,
    Encrypted,
    EncryptRequest,
    KeyQuery,
    ListKeysQuery,
    SecretDeleted,
    SecretKey,
    SecretKeys,
    SecretKeySet,
    SecretParams,
    SecretSet,
    SecretsQuery,
    SecretsUpdated,
    SetSecretKeyRequest,
    SetSecretRequest,
    Signed,
    SignRequest,
    UpdateSecretsRequest,
    VerifyRequest,
)
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import Unprocessable
from hawker.permission import Action, Attempt
from hawker.record.app import SecretKeyRecord, SecretRecord
from hawker.secret.secret_keys import SecretKeyStore
from hawker.secret.secrets import Secrets
from hawker.store.contract import Store
from hawker.worker.apps import AppTable

if TYPE_CHECKING:
    from hawker.secret import keyring
    from hawker.secret.keyring import Key
else:
    keyring = deferred("hawker.secret.keyring")


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


class SecretKeyHandlers:
    def __init__(
        self, store: Store, clock: Clock, secrets: Secrets, secret_keys: SecretKeyStore, apps: AppTable
    ) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._apps = apps
        self._keys = secret_keys

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_SECRET_KEYS, self.list)
        handlers.on(GET_SECRET_KEY, self.get)
        handlers.on(SET_SECRET_KEY, self.set)
        handlers.on(GENERATE_SECRET_KEY, self.generate)
        handlers.on(DELETE_SECRET_KEY, self.delete)
        handlers.on(ENCRYPT, self.encrypt)
        handlers.on(DECRYPT, self.decrypt)
        handlers.on(SIGN, self.sign)
        handlers.on(VERIFY, self.verify)

    async def list(self, call: Call[AppParams, ListKeysQuery, None]) -> SecretKeys:
        app, types = call.params.app_name, call.query.types
        self._check(app, call.query)
        keys = (record for record in self._keys.list(app) if not types or record.type in types)
        return SecretKeys(secret_keys=tuple(map(_view, keys)))

    async def get(self, call: Call[SecretParams, KeyQuery, None]) -> SecretKey:
        self._check(call.params.app_name, call.query)
        return _view(self._keys.get(call.params.app_name, call.params.secret_name))

    async def set(self, call: Call[SecretParams, NoQuery, SetSecretKeyRequest]) -> SecretKeySet:
        if call.body.value is None:
            raise Unprocessable("value is required: to make a random key, ask for `generate`")
        return await self._set(call.params, keyring.read(keyring.key_type(call.body.type), call.body.value))

    async def generate(self, call: Call[SecretParams, NoQuery, SetSecretKeyRequest]) -> SecretKeySet:
        return await self._set(call.params, keyring.make(keyring.key_type(call.body.type), self._clock.token_bytes))

    async def delete(self, call: Call[SecretParams, NoQuery, None]) -> SecretDeleted:
        version = await self._keys.delete(call.params.app_name, call.params.secret_name)
        return SecretDeleted(version=version, Version=version)

    async def encrypt(self, call: Call[SecretParams, KeyQuery, EncryptRequest]) -> Encrypted:
        key, body = self._key(call.params, call.query), call.body
        draw = self._clock.token_bytes
        return Encrypted(ciphertext=key.encrypt(body.plaintext, body.associated_data or b"", draw))

    async def decrypt(self, call: Call[SecretParams, KeyQuery, DecryptRequest]) -> Decrypted:
        key, body = self._key(call.params, call.query), call.body
        return Decrypted(plaintext=key.decrypt(body.ciphertext, body.associated_data or b""))

    async def sign(self, call: Call[SecretParams, KeyQuery, SignRequest]) -> Signed:
        return Signed(signature=self._key(call.params, call.query).sign(call.body.plaintext))

    async def verify(self, call: Call[SecretParams, KeyQuery, VerifyRequest]) -> None:
        self._key(call.params, call.query).verify(call.body.plaintext, call.body.signature)

    async def _set(self, params: SecretParams, key: "Key") -> SecretKeySet:
        record, version = await self._keys.set(params.app_name, params.secret_name, key)
        return SecretKeySet(
            name=record.name,
            type=record.type,
            created_at=instant(record.created_at),
            updated_at=instant(record.updated_at),
            version=version,
            Version=version,
            public_key=record.public,
        )

    def _key(self, params: SecretParams, query: KeyQuery) -> "Key":
        self._check(params.app_name, query)
        return self._keys.key(params.app_name, params.secret_name)

    def _check(self, app: str, query: KeyQuery | ListKeysQuery) -> None:
        self._apps.get(self._store, app)
        self._secrets.check_version(self._store, app, max(query.min_version or 0, query.version or 0))


def _view(record: SecretKeyRecord) -> SecretKey:
    return SecretKey(
        name=record.name,
        type=record.type,
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
        public_key=record.public,
    )
