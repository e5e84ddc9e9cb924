"""Facts about pushing an image, to a real registry and to ones that misbehave."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hawker.clock import SystemClock
from hawker.errors import NotFound, Unavailable
from hawker.image.cache import ImageCache
from hawker.image.failure import BadImage
from hawker.image.progress import PullProgress, PullStage
from hawker.image.registry import Credentials
from hawker.log import Secret
from tests.fixtures.parts import docker_files, tar
from tests.fixtures.registry import PASSWORD, USER, Registry
from tests.image.fake_registry import FakeRegistry
from tests.image.images import opened_cache, small

pytestmark = [pytest.mark.anyio, pytest.mark.root]

_ALICE = Credentials(USER, Secret(PASSWORD))
_LARGE = bytes(range(256)) * 10_000


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[ImageCache]:
    async with opened_cache(tmp_path / "own", clock=SystemClock()) as opened:
        yield opened


async def imported(cache: ImageCache, name: str, content: bytes = b"x") -> str:
    async def whole() -> AsyncIterator[bytes]:
        yield tar(*docker_files(small("app", content), name).items())

    return (await cache.import_archive(whole(), name)).digest


@pytest.mark.parametrize("private", [False, True])
async def test_an_image_is_pushed_and_pulled_by_another_node(
    cache: ImageCache, registry: Registry, private_registry: Registry, tmp_path: Path, private: bool
) -> None:
    target = private_registry if private else registry
    digest = await imported(cache, "local/app:v1", _LARGE)
    told: list[PullProgress] = []
    to = f"{target.host}/test/pushed:v1"
    await cache.push("local/app:v1", to, _ALICE if private else None, told.append)
    assert {each.stage for each in told} == {PullStage.UPLOADING} and told[-1].done_bytes == told[-1].total_bytes
    async with opened_cache(tmp_path / "other") as other:
        assert (await other.pull(to, _ALICE if private else None)).digest == digest
    told.clear()
    await cache.push(digest, f"{target.host}/test/pushed:v2", _ALICE if private else None, told.append)
    assert all(each.done_bytes == each.total_bytes for each in told)  # what is there is not sent again


async def test_a_wrong_login_and_none_are_told(cache: ImageCache, private_registry: Registry) -> None:
    await imported(cache, "local/app:v1")
    to = f"{private_registry.host}/test/refused:v1"
    with pytest.raises(BadImage, match=r"failed to push .*UNAUTHORIZED.*hawker registry login"):
        await cache.push("local/app:v1", to)
    with pytest.raises(BadImage, match="wrong user name or password"):
        await cache.push("local/app:v1", to, Credentials(USER, Secret("guess")))


async def test_an_image_that_cannot_be_pushed_is_told(cache: ImageCache) -> None:
    with pytest.raises(NotFound, match="is not on this node"):
        await cache.push("local/app:v1", "127.0.0.1:1/app:v1")
    digest = await imported(cache, "local/app:v1")
    for to in (f"127.0.0.1:1/app@{digest}", "oci:/tmp/x", "hawker/hello", None):
        with pytest.raises(BadImage):
            await cache.push(digest, to)


async def test_a_registry_that_is_away_can_be_tried_again(cache: ImageCache) -> None:
    await imported(cache, "local/app:v1")
    with pytest.raises(Unavailable, match=r"failed to push 127.0.0.1:1/app:v1: cannot reach"):
        await cache.push("local/app:v1", "127.0.0.1:1/app:v1")


async def test_a_registry_that_takes_no_uploads_is_told(cache: ImageCache, fake: FakeRegistry) -> None:
    await imported(cache, "local/app:v1")
    with pytest.raises(BadImage, match=r"failed to push"):
        await cache.push("local/app:v1", f"{fake.host}/app:v1")


@asynccontextmanager
async def handing(handle: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)  # type: ignore[arg-type]
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.close()


async def test_a_token_is_asked_for_with_the_scope_of_writing(cache: ImageCache) -> None:
    """As registries with a token server do: looking needs one scope, writing another."""
    await imported(cache, "local/app:v1")
    scopes: list[str] = []
    stored: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        if request.path == "/token":
            assert request.headers.get("Authorization") == _ALICE.basic()
            scopes.append(request.query["scope"])
            return web.json_response({"token": request.query["scope"].rpartition(":")[2].replace(",", "-")})
        wanted = "pull" if request.method == "HEAD" else "pull-push"
        if not (request.headers.get("Authorization") or "").startswith(f"Bearer {wanted}"):
            scope = f"repository:team/app:{wanted.replace('-', ',')}"
            challenge = f'Bearer realm="http://{request.host}/token",service="s",scope="{scope}"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if request.method == "HEAD":
            return web.Response(status=404)
        if request.method == "POST":
            return web.Response(status=202, headers={"Location": "/v2/team/app/blobs/uploads/1?state=x"})
        stored.append(request.path)
        assert len(await request.read()) > 0
        return web.Response(status=201)

    async with handing(handle) as host:
        await cache.push("local/app:v1", f"{host}/team/app:v1", _ALICE)
    assert scopes[:2] == ["repository:team/app:pull", "repository:team/app:pull,push"]
    assert stored[-1] == "/v2/team/app/manifests/v1" and len(stored) == 3


async def test_an_upload_is_not_led_to_an_inside_address_and_takes_no_password_elsewhere(cache: ImageCache) -> None:
    await imported(cache, "local/app:v1")
    elsewhere: list[str | None] = []

    async def other(request: web.Request) -> web.Response:
        elsewhere.append(request.headers.get("Authorization"))
        return web.Response(status=201)

    async with handing(other) as second:

        async def handle(request: web.Request) -> web.Response:
            if request.method == "HEAD":
                return web.Response(status=404)
            return web.Response(status=202, headers={"Location": f"http://{second}/steal"})

        async with handing(handle) as host:
            with pytest.raises(BadImage, match="INSECURE"):
                await cache.push("local/app:v1", f"{host}/team/app:v1", _ALICE)
    assert elsewhere == []
