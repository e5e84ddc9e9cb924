"""Facts about speaking with a registry, one that behaves and one that does not."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image import registry
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.reach import PullReach
from hawker.image.reference import RegistryReference, parse
from hawker.image.registry import (
    Authorizer,
    Credentials,
    RegistrySource,
    check_login,
    find_credentials,
    parse_challenges,
)
from hawker.image.transport import RegistryRefused, RegistryTransport, TryLater
from hawker.log import Secret
from hawker.sim.harness.loop import VirtualTimeLoop
from tests.fixtures.parts import ImageParts, layer, tar
from tests.image.fake_registry import PASSWORD, USER, FakeRegistry, dripping_registry


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


async def test_token_that_comes_in_two_pieces_is_read_whole(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.torn = True
    authorizer = Authorizer(transport, fake.host, "a/b", _ALICE)
    await authorizer.answer(bearer(fake), {})
    assert authorizer.headers() == {"Authorization": "Bearer t1"}


async def test_token_that_drips_is_given_up(transport: RegistryTransport) -> None:
    """Each byte began the time of silence anew."""
    hasty = RegistryTransport(transport.session, PullReach(), answer_s=0.3)
    async with dripping_registry(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n") as host:
        with anyio.fail_after(20), pytest.raises(TryLater, match=f"{host} does not answer within"):
            await Authorizer(hasty, host, "a/b", None).answer([f'Bearer realm="http://{host}/token"'], {})


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


async def test_token_server_whose_url_cannot_be_read_is_told(transport: RegistryTransport, fake: FakeRegistry) -> None:
    with pytest.raises(RegistryRefused, match="whose URL cannot be read"):
        await Authorizer(transport, fake.host, "a/b", _ALICE).answer(bearer(fake, realm="https://[x"), {})


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


_IMAGE = ImageParts([layer(tar(("a", bytes(200_000))))])


def source(transport: RegistryTransport, reference: str, credentials: Credentials | None = None) -> RegistrySource:
    parsed = parse(reference)
    assert isinstance(parsed, RegistryReference)
    return RegistrySource(transport, parsed, credentials, ManualClock(), 100_000)


def blob(digest: str) -> Layer:
    return Layer(digest=Digest(digest), size=0, media_type="")


async def read(origin: RegistrySource, wanted: Layer, offset: int = 0) -> tuple[int, bytes]:
    async with origin.blob(wanted, offset) as piece:
        return piece.offset, b"".join([chunk async for chunk in piece.chunks])


async def test_manifest_comes_by_tag_and_by_digest(transport: RegistryTransport, fake: FakeRegistry) -> None:
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    assert (await origin.manifest(None)).content == _IMAGE.manifest
    assert (await origin.manifest(Digest(_IMAGE.digest))).content == _IMAGE.manifest
    pinned = source(transport, f"{fake.host}/app@{_IMAGE.digest}")
    assert (await pinned.manifest(None)).content == _IMAGE.manifest


async def test_unknown_image_has_the_text_that_clients_match(transport: RegistryTransport, fake: FakeRegistry) -> None:
    origin = source(transport, f"{fake.host}/app:v9")
    with pytest.raises(
        BadImage, match=f"^failed to get manifest {fake.host}/app:v9: MANIFEST_UNKNOWN: manifest unknown$"
    ):
        await origin.manifest(None)


@pytest.mark.parametrize("guard", ["basic", "token"])
async def test_credentials_open_a_guarded_registry(
    transport: RegistryTransport, fake: FakeRegistry, guard: str
) -> None:
    fake.guard = guard
    origin = source(transport, fake.add("app", "v1", _IMAGE), _ALICE)
    assert (await origin.manifest(None)).content == _IMAGE.manifest
    for digest, content in _IMAGE.blobs.items():
        assert await read(origin, blob(digest)) == (0, content)
    assert fake.tokens == (1 if guard == "token" else 0)


@pytest.mark.parametrize("guard", ["basic", "token"])
@pytest.mark.parametrize("credentials", [None, Credentials(USER, Secret("guess"))])
async def test_guarded_registry_stays_closed_to_others(
    transport: RegistryTransport, fake: FakeRegistry, guard: str, credentials: Credentials | None
) -> None:
    fake.guard = guard
    origin = source(transport, fake.add("app", "v1", _IMAGE), credentials)
    with pytest.raises(
        BadImage, match=r"^failed to get manifest .*: UNAUTHORIZED: (wrong user|authentication)"
    ) as caught:
        await origin.manifest(None)
    assert "guess" not in str(caught.value)


async def test_expired_token_is_renewed(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.guard = "token"
    origin = source(transport, fake.add("app", "v1", _IMAGE), _ALICE)
    await origin.manifest(None)
    fake.expired = 1
    assert (await origin.manifest(None)).content == _IMAGE.manifest
    assert fake.tokens == 2


async def test_registry_that_refuses_its_own_tokens_is_told(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.guard, fake.expired = "token", 99
    origin = source(transport, fake.add("app", "v1", _IMAGE), _ALICE)
    with pytest.raises(BadImage, match="refuses the token that its own token server gave"):
        await origin.manifest(None)


async def test_busy_registry_is_asked_again(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.refusals = [503, 429, 500]
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    assert (await origin.manifest(None)).content == _IMAGE.manifest


async def test_registry_that_stays_down_is_unavailable(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.refusals = [503] * 9
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    with pytest.raises(Unavailable, match=r"^failed to get manifest .*/app:v1: 127.0.0.1 answered 503$"):
        await origin.manifest(None)


async def test_manifest_without_end_is_refused(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.put_manifest("app", "v1", b" " * 200_000)
    with pytest.raises(BadImage, match="is over 100000 bytes"):
        await source(transport, f"{fake.host}/app:v1").manifest(None)


async def test_blob_comes_from_where_it_broke_off(transport: RegistryTransport, fake: FakeRegistry) -> None:
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    content = _IMAGE.layers[0].blob
    assert await read(origin, blob(_IMAGE.layers[0].digest), 100) == (100, content[100:])


@pytest.mark.parametrize("ranges", ["ignored", "refused"])
async def test_blob_comes_whole_where_ranges_are_not_served(
    transport: RegistryTransport, fake: FakeRegistry, ranges: str
) -> None:
    fake.ranges = ranges
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    assert await read(origin, blob(_IMAGE.layers[0].digest), 100) == (0, _IMAGE.layers[0].blob)


async def test_missing_blob_names_the_layer(transport: RegistryTransport, fake: FakeRegistry) -> None:
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    missing = "sha256:" + "f" * 64
    with pytest.raises(BadImage, match=f"failed to get layer {missing} of .*: BLOB_UNKNOWN: blob unknown"):
        await read(origin, blob(missing))


async def test_cut_is_for_whoever_downloads(transport: RegistryTransport, fake: FakeRegistry) -> None:
    origin = source(transport, fake.add("app", "v1", _IMAGE))
    fake.cuts = [10]
    with pytest.raises(TryLater):
        await read(origin, blob(_IMAGE.layers[0].digest))


in_virtual_time = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": VirtualTimeLoop})], ids=["in virtual time"]
)


async def dripping(pause_s: float) -> AsyncIterator[bytes]:
    for _ in range(100):
        await SystemClock().sleep(pause_s)
        yield b"x" * 1000


@in_virtual_time
async def test_registry_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then kept a place among the downloads for as long as the registry liked."""
    monkeypatch.setattr(registry, "RATE_OVER_S", 0.2)
    with pytest.raises(Unavailable, match=r"drip\.test sends fewer than"):
        async for _ in registry._paced(dripping(0.03), "drip.test"):
            pass
    whole = [chunk async for chunk in registry._paced(dripping(0.0), "fast.test")]
    assert len(whole) == 100


@in_virtual_time
async def test_time_in_which_nobody_asks_is_not_the_registrys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RATE_OVER_S", 0.2)
    count = 0
    async for _ in registry._paced(dripping(0.0), "fast.test"):
        count += 1
        if count <= 3:
            await SystemClock().sleep(0.15)
    assert count == 100


@pytest.mark.parametrize("guard", ["", "basic", "token"])
async def test_a_login_that_the_registry_takes_is_good(
    fake: FakeRegistry, transport: RegistryTransport, guard: str
) -> None:
    fake.guard = guard
    await check_login(transport, fake.host, Credentials(USER, Secret(PASSWORD)), SystemClock())


@pytest.mark.parametrize("guard", ["basic", "token"])
async def test_a_wrong_login_is_refused_with_what_to_do(
    fake: FakeRegistry, transport: RegistryTransport, guard: str
) -> None:
    fake.guard = guard
    with pytest.raises(BadImage, match=r"wrong user name or password; log in again with `hawker registry login"):
        await check_login(transport, fake.host, Credentials(USER, Secret("guess")), SystemClock())


async def test_a_login_at_a_registry_that_is_away_can_be_tried_again(transport: RegistryTransport) -> None:
    with pytest.raises(Unavailable, match=r"cannot log in at 127.0.0.1:1: cannot reach"):
        await check_login(transport, "127.0.0.1:1", Credentials(USER, Secret(PASSWORD)), ManualClock())
