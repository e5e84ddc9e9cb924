import msgspec
import pytest

from hawker.api.contract.app import AppParams
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
    DecryptRequest,
    EncryptRequest,
    KeyQuery,
    ListKeysQuery,
    SecretParams,
    SecretsQuery,
    SetSecretKeyRequest,
    SetSecretRequest,
    SignRequest,
    UpdateSecretsRequest,
    VerifyRequest,
)
from hawker.api.grant import Everything
from hawker.api.route import Call
from hawker.errors import BadRequest, Forbidden, NotFound, Unprocessable, WrongState
from hawker.handlers.secrets import SecretHandlers
from hawker.permission import Action, Attempt
from hawker.secret.keyring import KeyType
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)


def secret(name: str) -> SecretParams:
    return SecretParams(app_name=APP, secret_name=name)


class Reader(Everything):
    """The grant of a token that reads and does nothing else."""

    def check(self, attempt: Attempt) -> None:
        if attempt.action is not Action.READ:
            raise Forbidden("not for you")


async def test_a_changed_secret_is_answered_and_the_stored_ones_are_listed(worker: SimWorker) -> None:
    body = UpdateSecretsRequest(values={"A": "1", "B": "2"})
    answer = await worker.api.call(UPDATE_SECRETS, params=HERE, body=body)
    assert [each.name for each in answer.secrets] == ["A", "B"] and answer.version == answer.Version == 1
    body = UpdateSecretsRequest(values={"A": None, "C": "3"})
    answer = await worker.api.call(UPDATE_SECRETS, params=HERE, body=body)
    assert [each.name for each in answer.secrets] == ["C"]
    listed = await worker.api.call(LIST_SECRETS, params=HERE)
    assert [(each.name, each.value) for each in listed.secrets] == [("B", None), ("C", None)]


async def test_one_is_set_shown_and_removed(worker: SimWorker) -> None:
    made = await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    shown = await worker.api.call(GET_SECRET, params=secret("A"), query=SecretsQuery(show_secrets=True))
    assert (shown.value, shown.digest) == ("1", made.digest)
    assert (await worker.api.call(DELETE_SECRET, params=secret("A"))).version == made.version + 1
    with pytest.raises(NotFound, match="secret A not found"):
        await worker.api.call(GET_SECRET, params=secret("A"))


async def test_values_are_shown_to_who_controls_the_app(worker: SimWorker) -> None:
    await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    handlers = SecretHandlers(worker.store, worker.parts.deps.secrets, worker.parts.apps)
    for shown in (False, True):
        query = SecretsQuery(show_secrets=shown)
        call = Call(params=HERE, query=query, body=None, grant=Reader("ann"), request_id="01H")
        if not shown:
            assert [each.value for each in (await handlers.list(call)).secrets] == [None]
            continue
        with pytest.raises(Forbidden):
            await handlers.list(call)


@pytest.mark.parametrize("query", [SecretsQuery(min_version=2), SecretsQuery(version=2)])
async def test_a_version_that_is_not_here_yet_is_said(worker: SimWorker, query: SecretsQuery) -> None:
    await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    with pytest.raises(WrongState, match="the newest is 1"):
        await worker.api.call(LIST_SECRETS, params=HERE, query=query)


async def test_an_app_that_is_not_there_has_none(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_SECRETS, params=AppParams(app_name="other"))


def named(name: str, app: str = APP) -> SecretParams:
    return SecretParams(app_name=app, secret_name=name)


async def generated(worker: SimWorker, type: str, name: str = "key") -> None:
    body = SetSecretKeyRequest(type=type)
    await worker.api.call(GENERATE_SECRET_KEY, params=named(name), body=body)


@pytest.mark.parametrize("type", ["xaes256gcm", "nacl_box", "nacl_secretbox"])
async def test_a_key_encrypts_and_decrypts_in_place(worker: SimWorker, type: str) -> None:
    await generated(worker, type)
    body = EncryptRequest(plaintext=b"data")
    sealed = (await worker.api.call(ENCRYPT, params=named("key"), body=body)).ciphertext
    assert b"data" not in sealed
    opened = await worker.api.call(DECRYPT, params=named("key"), body=DecryptRequest(ciphertext=sealed))
    assert opened.plaintext == b"data"


@pytest.mark.parametrize("type", ["es256", "hs256", "nacl_auth", "nacl_sign"])
async def test_a_key_signs_and_verifies_in_place(worker: SimWorker, type: str) -> None:
    await generated(worker, type)
    made = await worker.api.call(SIGN, params=named("key"), body=SignRequest(plaintext=b"data"))
    good = VerifyRequest(plaintext=b"data", signature=made.signature)
    await worker.api.call(VERIFY, params=named("key"), body=good)
    with pytest.raises(BadRequest, match="not this key's"):
        bad = msgspec.structs.replace(good, plaintext=b"other")
        await worker.api.call(VERIFY, params=named("key"), body=bad)


async def test_a_key_from_elsewhere_is_kept_and_not_shown(worker: SimWorker) -> None:
    value = bytes(range(32))
    body = SetSecretKeyRequest(type="hs256", value=value)
    made = await worker.api.call(SET_SECRET_KEY, params=named("key"), body=body)
    assert (made.version, made.Version, made.public_key) == (1, 1, None)
    shown = await worker.api.call(GET_SECRET_KEY, params=named("key"))
    assert (shown.name, shown.type) == ("key", "hs256")
    assert value not in msgspec.msgpack.encode(shown)
    assert not any(value in record.sealed for record in worker.parts.deps.secret_keys.list(APP))


async def test_keys_are_listed_by_type_with_their_public_part(worker: SimWorker) -> None:
    for type in KeyType:
        await generated(worker, type, f"key-{type}")
    every = await worker.api.call(LIST_SECRET_KEYS, params=HERE)
    assert len(every.secret_keys) == len(KeyType)
    public = {key.type for key in every.secret_keys if key.public_key}
    assert public == {"es256", "nacl_box", "nacl_sign"}
    some = await worker.api.call(LIST_SECRET_KEYS, params=HERE, query=ListKeysQuery(types=("es256", "hs256")))
    assert [key.type for key in some.secret_keys] == ["es256", "hs256"]


async def test_a_key_can_be_replaced_and_removed(worker: SimWorker) -> None:
    await generated(worker, "nacl_secretbox")
    body = EncryptRequest(plaintext=b"data")
    sealed = (await worker.api.call(ENCRYPT, params=named("key"), body=body)).ciphertext
    await generated(worker, "nacl_secretbox")
    with pytest.raises(BadRequest, match="not made with this key"):
        await worker.api.call(DECRYPT, params=named("key"), body=DecryptRequest(ciphertext=sealed))
    assert (await worker.api.call(DELETE_SECRET_KEY, params=named("key"))).version == 3
    with pytest.raises(NotFound, match="secret key key not found"):
        await worker.api.call(GET_SECRET_KEY, params=named("key"))


async def test_a_senseless_key_is_refused(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="value is required"):
        await worker.api.call(SET_SECRET_KEY, params=named("key"), body=SetSecretKeyRequest(type="hs256"))
    with pytest.raises(Unprocessable, match="type: 'rsa'"):
        await generated(worker, "rsa")
    with pytest.raises(Unprocessable, match="cannot be the name"):
        await generated(worker, "hs256", "a/b")
    with pytest.raises(NotFound, match="app not found"):
        body = SetSecretKeyRequest(type="hs256")
        await worker.api.call(GENERATE_SECRET_KEY, params=named("key", "other"), body=body)
    with pytest.raises(WrongState, match="the newest is 0"):
        await worker.api.call(GET_SECRET_KEY, params=named("key"), query=KeyQuery(min_version=1))
