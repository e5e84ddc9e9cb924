import pytest

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.errors import Fault, NotFound, Unprocessable
from hawker.record.app import SECRET_KEYS
from hawker.secret.keyring import Key, KeyType
from hawker.secret.secret_keys import MAX_KEYS, SecretKeyStore
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.vault import Vault

pytestmark = pytest.mark.anyio
KEY = Key(KeyType.HS256, b"k" * 32)


@pytest.fixture
def keys(worker: SimWorker) -> SecretKeyStore:
    return worker.parts.deps.secret_keys


async def test_a_key_is_the_same_after_it_was_stored(keys: SecretKeyStore) -> None:
    record, version = await keys.set(APP, "key", KEY)
    assert (keys.key(APP, "key"), version) == (KEY, 1)
    again, _ = await keys.set(APP, "key", KEY)
    assert again.created_at == record.created_at and again.sealed != record.sealed


async def test_a_key_is_of_its_app_and_its_name(worker: SimWorker, keys: SecretKeyStore) -> None:
    record, _ = await keys.set(APP, "key", KEY)
    await worker.store.write(lambda tx: tx.put(SECRET_KEYS, f"{APP}/other", record))
    with pytest.raises(Fault, match="cannot be read"):
        keys.key(APP, "other")


async def test_a_node_whose_key_was_replaced_says_so(worker: SimWorker, keys: SecretKeyStore) -> None:
    await keys.set(APP, "key", KEY)
    deps = worker.parts.deps
    stranger = SecretKeyStore(deps.store, Vault(b"x" * 32, deps.clock), deps.secrets, deps.clock)
    with pytest.raises(Fault, match="the node's key was replaced"):
        stranger.key(APP, "key")


async def test_an_app_has_only_so_many(keys: SecretKeyStore) -> None:
    for number in range(MAX_KEYS):
        await keys.set(APP, f"key-{number}", KEY)
    await keys.set(APP, "key-0", KEY)
    with pytest.raises(Unprocessable, match="at most"):
        await keys.set(APP, "one-more", KEY)


async def test_they_go_with_the_app(worker: SimWorker, keys: SecretKeyStore) -> None:
    await keys.set(APP, "key", KEY)
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert list(worker.store.scan(SECRET_KEYS)) == []
    with pytest.raises(NotFound):
        await keys.delete(APP, "key")
