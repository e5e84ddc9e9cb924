"""Facts about speaking with a registry, one that behaves and one that does not."""

from collections.abc import AsyncIterator

import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image import registry
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.reference import RegistryReference, parse
from hawker.image.registry import RegistrySource, check_login
from hawker.image.registry_auth import Credentials
from hawker.image.transport import RegistryTransport, TryLater
from hawker.log import Secret
from tests.fixtures.parts import ImageParts, layer, tar
from tests.image.fake_registry import PASSWORD, USER, FakeRegistry

pytestmark = pytest.mark.anyio

_IMAGE = ImageParts([layer(tar(("a", bytes(200_000))))])
_ALICE = Credentials(USER, Secret(PASSWORD))


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


async def dripping(pause_s: float) -> AsyncIterator[bytes]:
    for _ in range(100):
        await SystemClock().sleep(pause_s)
        yield b"x" * 1000


async def test_registry_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then kept a place among the downloads for as long as the registry liked."""
    monkeypatch.setattr(registry, "RATE_OVER_S", 0.2)
    with pytest.raises(Unavailable, match=r"drip\.test sends fewer than"):
        async for _ in registry._paced(dripping(0.03), "drip.test"):
            pass
    whole = [chunk async for chunk in registry._paced(dripping(0.0), "fast.test")]
    assert len(whole) == 100


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
