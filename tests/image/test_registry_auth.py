"""Facts about finding credentials."""

import base64
import json
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import Unavailable
from hawker.image.registry_auth import Authorizer, Credentials, find_credentials, parse_challenges
from hawker.image.transport import RegistryRefused, RegistryTransport, TryLater
from hawker.log import Secret
from tests.image.fake_registry import PASSWORD, USER, FakeRegistry


def auth_file(folder: Path, **auths: dict[str, str]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"auths": auths, "credsStore": "ignored"}))
    return path


def packed(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def revealed(found: Credentials | None) -> tuple[str, str] | None:
    return (found.username, found.password.reveal()) if found else None


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("registry.example:5000", "registry.example:5000"),
        ("https://registry.example", "registry.example"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ],
)
def test_entry_is_found_under_its_usual_names(tmp_path: Path, key: str, registry: str) -> None:
    file = auth_file(tmp_path, **{key: packed("alice:a:b")})
    assert revealed(find_credentials(file, registry)) == ("alice", "a:b")


def test_plain_user_and_password_are_read(tmp_path: Path) -> None:
    file = auth_file(tmp_path, host={"username": "bob", "password": "x"})
    assert revealed(find_credentials(file, "host")) == ("bob", "x")


@pytest.mark.parametrize("entry", [{}, {"auth": "%%%"}, packed("nocolon"), {"auth": "/w=="}])
def test_entry_without_a_password_is_none(tmp_path: Path, entry: dict[str, str]) -> None:
    assert find_credentials(auth_file(tmp_path, host=entry), "host") is None


def test_other_hosts_get_nothing(tmp_path: Path) -> None:
    file = auth_file(tmp_path, **{"host.example": packed("a:b")})
    assert find_credentials(file, "example") is None
    assert find_credentials(file, "evil-host.example") is None
    assert find_credentials(tmp_path / "nope", "host.example") is None
    assert find_credentials(None, "host.example") is None


def test_unreadable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Unavailable, match=r"the registry credentials in .*config.json cannot be read"):
        find_credentials(tmp_path / "config.json", "host")


def test_password_is_not_shown() -> None:
    credentials = Credentials("alice", Secret("hidden"))
    assert "hidden" not in repr(credentials)
    assert credentials.basic() == "Basic " + base64.b64encode(b"alice:hidden").decode()


def test_bearer_challenge_is_read() -> None:
    header = 'Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push"'
    [found] = parse_challenges([header])
    assert found.scheme == "bearer"
    assert found.get("realm") == "https://auth.example/token"
    assert found.get("scope") == "repository:a/b:pull,push"
    assert found.get("error") is None


@pytest.mark.parametrize(
    ("headers", "schemes"),
    [
        (["Basic realm=registry"], ["basic"]),
        (['BASIC REALM="a \\"b\\""'], ["basic"]),
        (['Bearer realm="x", Basic realm="y"'], ["bearer", "basic"]),
        (['Bearer realm="x"', 'Basic realm="y"'], ["bearer", "basic"]),
        (["Negotiate, Basic realm=y"], ["negotiate", "basic"]),
        ([""], []),
        (["=="], []),
    ],
)
def test_every_challenge_is_found(headers: list[str], schemes: list[str]) -> None:
    assert [found.scheme for found in parse_challenges(headers)] == schemes


def test_quoted_quotes_are_unquoted() -> None:
    assert parse_challenges(['Basic Realm="a \\"b\\""'])[0].get("realm") == 'a "b"'


@given(st.text(alphabet='Bearer realm="\\,= x', max_size=200))
def test_any_challenge_header_is_survived(header: str) -> None:
    parse_challenges([header])


pytestmark = pytest.mark.anyio

_ALICE = Credentials(USER, Secret(PASSWORD))
_MALLORY = Credentials("mallory", Secret("guess"))


def bearer(fake: FakeRegistry, **more: str) -> list[str]:
    parameters = {"realm": f"http://{fake.host}/token", "service": "fake", **more}
    return ["Bearer " + ",".join(f'{key}="{value}"' for key, value in parameters.items())]


async def test_token_is_fetched_and_sent(transport: RegistryTransport, fake: FakeRegistry) -> None:
    authorizer = Authorizer(transport, fake.host, "a/b", _ALICE)
    assert authorizer.headers() == {}
    await authorizer.answer(bearer(fake), {})
    assert authorizer.headers() == {"Authorization": "Bearer t1"}
    assert fake.asked[0].authorization == _ALICE.basic()


async def test_anybody_gets_a_token_of_a_public_registry(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.public = True
    authorizer = Authorizer(transport, fake.host, "a/b", None)
    await authorizer.answer(bearer(fake), {})
    assert authorizer.headers() == {"Authorization": "Bearer t1"}
    assert fake.asked[0].authorization is None


async def test_many_that_are_challenged_at_once_fetch_one_token(
    transport: RegistryTransport, fake: FakeRegistry
) -> None:
    authorizer = Authorizer(transport, fake.host, "a/b", _ALICE)
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(authorizer.answer, bearer(fake), {})
    assert fake.tokens == 1


async def test_token_that_is_refused_is_replaced(transport: RegistryTransport, fake: FakeRegistry) -> None:
    authorizer = Authorizer(transport, fake.host, "a/b", _ALICE)
    await authorizer.answer(bearer(fake), {})
    await authorizer.answer(bearer(fake), authorizer.headers())
    assert authorizer.headers() == {"Authorization": "Bearer t2"}


async def test_basic_needs_credentials(transport: RegistryTransport) -> None:
    authorizer = Authorizer(transport, "127.0.0.1:1", "a/b", _ALICE)
    await authorizer.answer(['Basic realm="x"'], {})
    assert authorizer.headers() == {"Authorization": _ALICE.basic()}
    with pytest.raises(
        RegistryRefused, match="authentication required; the image does not exist, or needs credentials"
    ):
        await Authorizer(transport, "127.0.0.1:1", "a/b", None).answer(['Basic realm="x"'], {})


async def test_wrong_password_is_told(transport: RegistryTransport, fake: FakeRegistry) -> None:
    with pytest.raises(RegistryRefused, match=r"^wrong user name or password; log in again"):
        await Authorizer(transport, fake.host, "a/b", _MALLORY).answer(bearer(fake), {})
    basic = Authorizer(transport, fake.host, "a/b", _MALLORY)
    await basic.answer(["Basic realm=x"], {})
    with pytest.raises(RegistryRefused, match=r"^wrong user name or password; log in again"):
        await basic.answer(["Basic realm=x"], basic.headers())


@pytest.mark.parametrize("realm", ["http://192.0.2.1/token", "ftp://127.0.0.1/token", "token"])
async def test_password_is_not_sent_over_an_unsafe_way(
    transport: RegistryTransport, fake: FakeRegistry, realm: str
) -> None:
    with pytest.raises(RegistryRefused, match=r"refusing to speak|another domain"):
        await Authorizer(transport, fake.host, "a/b", _ALICE).answer(bearer(fake, realm=realm), {})


@pytest.mark.parametrize("challenges", [[], [""], ["Negotiate"], ["Bearer service=x"]])
async def test_challenge_that_is_not_understood_is_told(transport: RegistryTransport, challenges: list[str]) -> None:
    with pytest.raises(RegistryRefused, match="authentication required"):
        await Authorizer(transport, "127.0.0.1:1", "a/b", _ALICE).answer(challenges, {})


async def test_password_is_sent_to_no_token_server_of_another_domain(
    transport: RegistryTransport, fake: FakeRegistry
) -> None:
    challenge = bearer(fake, realm="https://tokens.example/token")
    with pytest.raises(
        RegistryRefused,
        match=r"another domain, tokens.example; allow it with `hawker registry login",
    ):
        await Authorizer(transport, "registry.test", "a/b", _ALICE).answer(challenge, {})
    known = Credentials(USER, Secret(PASSWORD), realm="tokens.example")
    with pytest.raises(TryLater, match=r"cannot reach tokens.example"):  # it is asked, and is not there
        await Authorizer(transport, "registry.test", "a/b", known).answer(challenge, {})


async def test_registry_cannot_have_the_host_ask_its_own_loopback(
    transport: RegistryTransport, fake: FakeRegistry
) -> None:
    """What an inside service answers as a token would be shown to the registry."""
    fake.public = True
    for realm in (f"http://{fake.host}/token?x=1", f"https://{fake.host}/token"):
        with pytest.raises(RegistryRefused, match=r"refusing to speak http|not at a public address"):
            await Authorizer(transport, "registry.test", "a/b", None).answer(bearer(fake, realm=realm), {})
    assert fake.asked == []
