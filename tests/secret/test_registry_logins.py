from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import Fault, NotFound, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.record.org import REGISTRY_LOGINS, LoginRecord
from hawker.secret.registry_logins import MOST_LOGINS, CarriedLogin, RegistryLogins, registry_name
from hawker.store.memory_store import MemoryStore
from hawker.vault import KEY_BYTES, Vault

pytestmark = pytest.mark.anyio

HOST = "registry.example:5000"
ADA = Credentials("ada", Secret("pass word"), "auth.example")


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    yield store
    await store.close()


@pytest.fixture
def logins(store: MemoryStore) -> RegistryLogins:
    return made(store)


def made(store: MemoryStore, key: bytes = bytes(KEY_BYTES)) -> RegistryLogins:
    return RegistryLogins(store, Vault(key, SystemClock()), SystemClock())


def shown(found: Credentials | None) -> tuple[str, str, str] | None:
    return None if found is None else (found.username, found.password.reveal(), found.realm)


class Fleet:
    """Keeps `Elsewhere`."""

    def __init__(self, login: CarriedLogin | None = None, error: Unavailable | None = None) -> None:
        self.login, self.error = login, error

    async def newer(self, org: str, registry: str, than: float) -> CarriedLogin | None:
        if self.error is not None:
            raise self.error
        return self.login if self.login is not None and self.login.at > than else None

    async def told(self, org: str) -> Sequence[tuple[LoginRecord, tuple[NodeId, ...]]]:
        if self.login is None:
            return ()
        gone = not self.login.password
        record = LoginRecord(
            org=org, registry=HOST, username=self.login.username, sealed=b"", at=self.login.at, by="bob", gone=gone
        )
        return ((record, (NodeId("0000000b"),)),)


def login(password: str, at: float) -> CarriedLogin:
    return CarriedLogin(username="bob", password=password, realm="", at=at, by="bob")


async def test_a_login_is_found_by_its_organization_alone(logins: RegistryLogins, store: MemoryStore) -> None:
    await logins.put("acme", HOST, ADA, "ann")
    found = await logins.find("acme", HOST)
    assert shown(found) == ("ada", "pass word", "auth.example")
    assert await logins.find("other", HOST) is None and await logins.find("acme", "elsewhere") is None
    assert shown(await logins.for_image("acme", f"{HOST}/web:1")) == shown(ADA)
    assert await logins.for_image("acme", "web:1") is None
    assert await logins.for_image("acme", "hawker/hello") is None


async def test_the_password_is_sealed_on_the_disk(logins: RegistryLogins, store: MemoryStore) -> None:
    record = await logins.put("acme", HOST, ADA, "ann")
    assert b"pass word" not in record.sealed and "pass word" not in repr(record)
    assert (record.username, record.by) == ("ada", "ann")
    with pytest.raises(Fault):
        await made(store, b"x" * KEY_BYTES).find("acme", HOST)
    moved = msgspec.structs.replace(record, org="other")
    await store.write(lambda tx: tx.put(REGISTRY_LOGINS, f"other/{HOST}", moved))
    with pytest.raises(Fault):  # what is sealed for one organization is nothing in another's place
        await logins.find("other", HOST)


async def test_a_login_that_was_given_up_is_gone(logins: RegistryLogins) -> None:
    await logins.put("acme", HOST, ADA, "ann")
    await logins.give_up("acme", HOST, "ann")
    assert await logins.find("acme", HOST) is None and await logins.all("acme") == []
    with pytest.raises(NotFound, match=r"no login at registry.example:5000"):
        await logins.give_up("acme", HOST, "ann")


async def test_the_newest_login_of_the_fleet_counts_and_is_kept(logins: RegistryLogins) -> None:
    first = await logins.put("acme", HOST, ADA, "ann")
    fleet = Fleet(login("newer", first.at + 5))
    logins.meet(fleet)
    found = await logins.find("acme", HOST)
    assert found is not None and found.password.reveal() == "newer"
    fleet.login = None
    found = await logins.find("acme", HOST)
    assert found is not None and found.password.reveal() == "newer"


async def test_a_logout_elsewhere_counts_here(logins: RegistryLogins) -> None:
    first = await logins.put("acme", HOST, ADA, "ann")
    logins.meet(Fleet(login("", first.at + 5)))
    assert await logins.find("acme", HOST) is None
    assert await logins.all("acme") == []


async def test_a_login_here_after_a_newer_one_elsewhere_is_the_newest(logins: RegistryLogins) -> None:
    logins.meet(Fleet(login("far", 9e9)))
    await logins.find("acme", HOST)
    assert (await logins.put("acme", HOST, ADA, "ann")).at > 9e9
    assert shown(await logins.find("acme", HOST)) == shown(ADA)


async def test_without_the_node_that_has_it_an_older_login_is_used_and_none_is_an_error(
    logins: RegistryLogins,
) -> None:
    logins.meet(Fleet(error=Unavailable("node away")))
    with pytest.raises(Unavailable, match="node away"):
        await logins.find("acme", HOST)
    await logins.put("acme", HOST, ADA, "ann")
    assert shown(await logins.find("acme", HOST)) == shown(ADA)


async def test_all_logins_are_told_with_the_nodes_that_have_them(logins: RegistryLogins) -> None:
    await logins.put("acme", "other.example", ADA, "ann")
    logins.meet(Fleet(login("pw", 5.0)))
    found = [(record.registry, record.username, nodes) for record, nodes in await logins.all("acme")]
    assert found == [("other.example", "ada", ()), (HOST, "bob", (NodeId("0000000b"),))]


@pytest.mark.parametrize(
    ("username", "password"),
    [("", "x"), ("a:b", "x"), ("a" * 256, "x"), ("ada", ""), ("ada", "x" * 20_000), ("ada", "a\r\nHost: b")],
)
async def test_a_login_that_cannot_be_one_is_refused(logins: RegistryLogins, username: str, password: str) -> None:
    with pytest.raises(Unprocessable):
        await logins.put("acme", HOST, Credentials(username, Secret(password)), "ann")


async def test_an_organization_has_a_bound_of_logins(logins: RegistryLogins) -> None:
    for number in range(MOST_LOGINS):
        await logins.put("acme", f"r{number}.example", ADA, "ann")
    with pytest.raises(Unprocessable, match="at most"):
        await logins.put("acme", "one.more", ADA, "ann")
    await logins.put("other", "one.more", ADA, "ann")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("registry.example", "registry.example"),
        ("https://registry.example/", "registry.example"),
        ("127.0.0.1:5000", "127.0.0.1:5000"),
        ("localhost", "localhost"),
        ("docker.io", "docker.io"),
        ("index.docker.io", "docker.io"),
        ("[::1]:5000", "[::1]:5000"),
    ],
)
def test_a_registry_is_named_by_its_host(text: str, name: str) -> None:
    assert registry_name(text) == name


@pytest.mark.parametrize("text", ["", "word", "a b", "host.example/path", "https://host.example/v2", "x@y", "\n"])
def test_a_text_that_is_no_registry_is_refused(text: str) -> None:
    with pytest.raises(Unprocessable, match="is not a registry"):
        registry_name(text)
