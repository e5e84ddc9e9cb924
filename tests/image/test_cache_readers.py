"""Facts about images of several organizations on one node: nobody gets what its own source does not give it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.errors import NotFound, Unavailable
from hawker.image.blobs import ImageReader
from hawker.image.cache import ImageCache
from hawker.image.failure import BadImage
from hawker.image.limits import ImageSettings
from hawker.image.registry import Credentials
from hawker.log import Secret
from tests.fixtures.parts import ImageParts, docker_files, layer, tar
from tests.fixtures.registry import PASSWORD, USER
from tests.image.fake_registry import FakeRegistry, fake_registry
from tests.image.images import architecture, opened_cache, small
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root]

A, B = ImageReader("acme"), ImageReader("bolt")
LOGIN = Credentials(USER, Secret(PASSWORD))
PRIVATE = ImageParts([layer(tar(("secret", os.urandom(200_000))))], {"Cmd": ["/secret"]}, architecture())


@pytest.fixture
async def cache(tmp_path: Path, fake: FakeRegistry) -> AsyncIterator[ImageCache]:
    settings = ImageSettings(allow_local=True, private_hosts=frozenset({fake.host}))
    async with opened_cache(tmp_path, settings) as opened:
        yield opened


@pytest.fixture
async def reference(cache: ImageCache, fake: FakeRegistry) -> str:
    """Of an image that acme pulled with its login."""
    fake.guard = "basic"
    made = fake.add("acme/app", "v1", PRIVATE)
    await cache.pull(made, LOGIN, org=A)
    fake.asked.clear()
    return made


async def test_digest_of_anothers_private_image_is_not_on_this_node(cache: ImageCache, reference: str) -> None:
    assert (await cache.resolve(PRIVATE.digest, org=A)).digest == PRIVATE.digest
    with pytest.raises(NotFound) as caught:
        await cache.resolve(PRIVATE.digest, org=B)
    absent = "sha256:" + "0" * 64
    with pytest.raises(NotFound) as none_there:
        await cache.resolve(absent, org=B)
    assert str(caught.value) == str(none_there.value).replace(absent, PRIVATE.digest), "nor is it told that it is"


async def test_name_without_a_login_is_refused_though_the_image_is_here(cache: ImageCache, reference: str) -> None:
    with pytest.raises(BadImage, match="UNAUTHORIZED"):
        await cache.resolve(reference, org=B)


async def test_registry_that_is_away_opens_the_image_to_its_own_organization_only(
    cache: ImageCache, fake: FakeRegistry, reference: str
) -> None:
    fake.refusals = [503] * 100
    assert (await cache.resolve(reference, org=A)).digest == PRIVATE.digest
    with pytest.raises(Unavailable):
        await cache.resolve(reference, org=B)


async def test_organization_with_a_login_of_its_own_proves_it_by_the_bytes_once(
    cache: ImageCache, fake: FakeRegistry, reference: str
) -> None:
    resolved = await cache.resolve(reference, LOGIN, B)
    assert not cache.is_here_for(resolved, B) and cache.is_here_for(resolved, A)
    image = await cache.pull(reference, LOGIN, org=B)
    asked = fake.times("/blobs/")
    assert asked >= len(PRIVATE.blobs)
    assert cache.is_here_for(resolved, B)
    assert (await cache.resolve(image.digest, org=B)).digest == image.digest
    await cache.pull(reference, LOGIN, org=B)
    assert fake.times("/blobs/") == asked, "not again"


async def test_registry_that_names_anothers_layer_must_have_its_bytes(
    cache: ImageCache, fake: FakeRegistry, reference: str
) -> None:
    """An organization that knows the digests serves a manifest with them; what is here does not stand in."""
    fake.guard = ""
    stolen = fake.add("bolt/copy", "v1", PRIVATE)
    for digest in PRIVATE.blobs:
        del fake.blobs[digest]
    resolved = await cache.resolve(stolen, org=B)
    with pytest.raises(BadImage, match="failed to get layer"):
        await cache.fetch(resolved, org=B)
    assert not cache.is_here_for(resolved, B)


async def test_a_download_another_began_completes_nothing(cache: ImageCache, fake: FakeRegistry) -> None:
    """A source with the last bytes only does not get the first ones from a download that broke off."""
    reference = fake.add("acme/app", "v1", PRIVATE)
    fake.guard = "basic"
    content = fake.blobs[PRIVATE.layers[0].digest]
    resolved = await cache.resolve(reference, LOGIN, A)
    fake.blobs[PRIVATE.layers[0].digest] = content[:-10]
    with pytest.raises((BadImage, Unavailable)):
        await cache.fetch(resolved, LOGIN, org=A)
    fake.guard = ""
    fake.blobs[PRIVATE.layers[0].digest] = b"x" * (len(content) - 10) + content[-10:]
    with pytest.raises(BadImage, match="does not match its digest"):
        await cache.fetch(await cache.resolve(reference, org=B), org=B)


async def test_an_image_a_registry_shows_to_anybody_is_everybodys(cache: ImageCache, fake: FakeRegistry) -> None:
    image = await cache.pull(fake.add("app", "v1", small("app")), org=A)
    assert (await cache.resolve(image.digest, org=B)).digest == image.digest


async def test_an_image_the_nodes_own_login_shows_is_everybodys(tmp_path: Path, fake: FakeRegistry) -> None:
    fake.guard = "basic"
    (tmp_path / "auth.json").write_text(
        f'{{"auths": {{"{fake.host}": {{"username": "{USER}", "password": "{PASSWORD}"}}}}}}'
    )
    settings = ImageSettings(private_hosts=frozenset({fake.host}), auth_file=tmp_path / "auth.json")
    async with opened_cache(tmp_path, settings) as cache:
        image = await cache.pull(fake.add("app", "v1", small("app")), org=A)
        assert (await cache.resolve(image.digest, org=B)).digest == image.digest


async def test_registry_that_only_some_may_name_gives_nothing_to_everybody(tmp_path: Path, fake: FakeRegistry) -> None:
    async with opened_cache(tmp_path, ImageSettings()) as cache:
        image = await cache.pull(fake.add("app", "v1", small("app")), org=A)
        with pytest.raises(NotFound):
            await cache.resolve(image.digest, org=B)


async def test_upload_for_one_organization_leaves_the_name_to_the_others(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", small("app"))

    async def archive(image: ImageParts) -> AsyncIterator[bytes]:
        yield tar(*docker_files(image).items())

    own = await cache.import_archive(archive(small("own")), reference, A)
    theirs = await cache.pull(reference, org=B)
    assert theirs.digest == small("app").digest != own.digest
    assert (await cache.resolve(reference, org=A)).digest == own.digest, "which they did not take over"
    assert (await cache.resolve(reference, org=B)).digest == theirs.digest
    with pytest.raises(NotFound):
        await cache.resolve(own.digest, org=B)


async def test_upload_for_all_is_everybodys(cache: ImageCache) -> None:
    async def archive() -> AsyncIterator[bytes]:
        yield tar(*docker_files(small("own")).items())

    image = await cache.import_archive(archive(), "mine:v1")
    assert (await cache.resolve("mine:v1", org=B)).digest == image.digest


async def test_build_that_fetches_again_keeps_nobody_waiting(cache: ImageCache, fake: FakeRegistry) -> None:
    """What was pruned before its build came once more with the image's builds locked, from any registry."""
    made = fake.add("app", "v1", PRIVATE)
    async with fake_registry() as slow:
        lost = await cache.resolve(slow.add("app", "v1", PRIVATE), org=A)
        slow.together = 1_000
        async with anyio.create_task_group() as group:
            group.start_soon(cache.build, lost, None, A)
            await eventually(lambda: slow.times("/blobs/"))
            with anyio.fail_after(30):
                assert (await cache.pull(made, org=B)).digest == PRIVATE.digest
            group.cancel_scope.cancel()
