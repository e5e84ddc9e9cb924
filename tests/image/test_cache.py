"""Facts about the node's image cache as a whole: steps that can be repeated, pulls beside each other, crashes."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.errors import NoRoom, NotFound, NotServed, TooLarge, Unavailable
from hawker.ids import Digest
from hawker.image.cache import ImageCache
from hawker.image.config import Image
from hawker.image.failure import BadImage, BadLayer
from hawker.image.limits import ImageLimits, ImageSettings
from hawker.image.progress import PullProgress, PullStage
from hawker.image.registry import Credentials
from hawker.log import Secret
from tests.fixtures.parts import OCI_INDEX, ImageParts, docker_files, index, layer, layout, pointer, push, sha256, tar
from tests.fixtures.registry import PASSWORD, USER, Registry
from tests.image.fake_registry import FakeRegistry
from tests.image.images import architecture, opened_cache, small

pytestmark = [pytest.mark.anyio, pytest.mark.root]

_IMAGE = small("app")


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[ImageCache]:
    async with opened_cache(tmp_path) as opened:
        yield opened


def files(root: Path) -> list[str]:
    """All files of a cache."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 10_000):
        yield content[at : at + 10_000]


# Pulls.


async def test_pull_from_a_real_registry(cache: ImageCache, registry: Registry) -> None:
    reference = push(registry, "test/pulled", "v1", _IMAGE)
    image = await cache.pull(reference)
    assert (image.digest, image.reference) == (_IMAGE.digest, reference)
    assert (image.registry, image.repository, image.tag) == (registry.host, "test/pulled", "v1")
    assert image.config.cmd == ("/app",)
    assert cache.find(reference) == cache.find(image.digest) == image
    assert cache.find(f"{registry.host}/test/pulled@{image.digest}") == image
    assert cache.block_path(image.digest).stat().st_size == image.rootfs_bytes > 0
    assert cache.block_type(image.digest) == image.rootfs_type


async def test_right_password_opens_a_private_registry(cache: ImageCache, private_registry: Registry) -> None:
    reference = push(private_registry, "test/private", "v1", _IMAGE)
    image = await cache.pull(reference, Credentials(USER, Secret(PASSWORD)))
    assert image.config.cmd == ("/app",)


@pytest.mark.parametrize("credentials", [None, Credentials(USER, Secret("guess"))])
async def test_private_registry_refuses_others(
    cache: ImageCache, private_registry: Registry, credentials: Credentials | None
) -> None:
    with pytest.raises(BadImage, match=r"failed to get manifest .*: UNAUTHORIZED: (wrong|authentication)"):
        await cache.pull(f"{private_registry.host}/test/private:v1", credentials)


async def test_unknown_image_has_the_text_that_clients_match(cache: ImageCache, registry: Registry) -> None:
    reference = f"{registry.host}/test/unknown:v1"
    with pytest.raises(BadImage, match=rf"^failed to get manifest {reference}: MANIFEST_UNKNOWN: "):
        await cache.pull(reference)
    assert files(cache.root) == []


async def test_unreachable_registry_is_unavailable(cache: ImageCache) -> None:
    with pytest.raises(Unavailable, match=r"failed to get manifest 127.0.0.1:1/app:v1: cannot reach 127.0.0.1:1"):
        await cache.pull("127.0.0.1:1/app:v1")


async def test_sample_image_needs_no_network(cache: ImageCache) -> None:
    image = await cache.pull("hawker/hello")
    assert (image.registry, image.repository, image.tag) == ("", "hawker/hello", "latest")
    assert image.config.entrypoint == ("/bin/hello",)
    assert cache.find("hawker/hello") == image


async def test_sample_image_by_its_digest_needs_no_network_either(cache: ImageCache, tmp_path: Path) -> None:
    """Clients order NAME@DIGEST, also of a node that never ran it."""
    digest = (await cache.resolve("hawker/hello")).digest
    async with opened_cache(tmp_path / "other") as other:
        for reference in (f"hawker/hello@{digest}", f"/hawker/hello:latest@{digest}"):
            image = await other.pull(reference)
            assert (image.repository, image.tag, image.digest) == ("hawker/hello", "latest", digest)
            assert other.find(reference) == image
    with pytest.raises(NotFound, match=f"of this version is hawker/hello@{digest}: order hawker/hello"):
        await cache.resolve("hawker/hello@sha256:" + "0" * 64)


async def test_pull_tells_its_progress(cache: ImageCache, fake: FakeRegistry) -> None:
    seen: list[PullProgress] = []
    image = await cache.pull(fake.add("app", "v1", _IMAGE), progress=seen.append)
    stages = [progress.stage for progress in seen]
    assert stages == sorted(stages, key=list(PullStage).index)
    assert set(stages) == set(PullStage) - {PullStage.UPLOADING}
    assert seen[-1].done_bytes == seen[-1].total_bytes == image.size_bytes
    unpacked = [progress.done_bytes for progress in seen if progress.stage is PullStage.UNPACKING]
    assert unpacked == sorted(unpacked) and unpacked[0] == 0 and unpacked[-1] > 0


async def test_second_pull_fetches_the_manifest_only(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    first = await cache.pull(reference)
    assert fake.times("/blobs/") == 2
    assert await cache.pull(reference) == first
    assert fake.times("/blobs/") == 2


async def test_ten_pulls_at_once_fetch_and_build_once(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    pulled: list[Image] = []

    async def pull() -> None:
        pulled.append(await cache.pull(reference))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(pull)
    assert pulled == pulled[:1] * 10
    assert fake.times("/blobs/") == 2


async def test_images_share_their_layers(cache: ImageCache, fake: FakeRegistry) -> None:
    base = layer(tar(("base", os.urandom(10_000))))
    one, two = (ImageParts([base, layer(tar((name, b"")))], architecture=architecture()) for name in "ab")
    await cache.pull(fake.add("one", "v1", one))
    resolved = await cache.resolve(fake.add("two", "v1", two))
    assert 0 < cache.missing_bytes(resolved) < 10_000
    await cache.pull(f"{fake.host}/two:v1")
    assert fake.times(f"/blobs/{base.digest}") == 1
    assert cache.missing_bytes(resolved) == 0


async def test_tag_that_moves_is_followed_and_a_digest_is_not(cache: ImageCache, fake: FakeRegistry) -> None:
    reference, newer = fake.add("app", "v1", _IMAGE), small("newer")
    old = await cache.pull(reference)
    fake.add("app", "v1", newer)
    assert cache.find(reference) == old
    assert (await cache.pull(reference)).digest == newer.digest
    assert (await cache.pull(f"{fake.host}/app@{old.digest}")).digest == old.digest
    assert cache.find(reference) == cache.find(newer.digest)
    assert {image.digest for image in cache.list()} == {old.digest, newer.digest}


async def test_name_is_kept_when_the_pull_goes_by_digest(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    resolved = await cache.resolve(reference)
    image = await cache.pull(f"{resolved.registry}/{resolved.repository}@{resolved.digest}")
    assert image.reference == reference
    assert cache.find(reference) == image
    assert cache.names_of(image.digest) == (reference,)


async def test_registry_that_is_down_does_not_hide_what_is_here(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    image = await cache.pull(reference)
    fake.refusals = [503] * 99
    assert (await cache.resolve(reference)).digest == image.digest
    with pytest.raises(Unavailable):
        await cache.resolve(f"{fake.host}/app:v2")


async def test_index_leads_to_this_hosts_image(cache: ImageCache, fake: FakeRegistry) -> None:
    fake.add("app", "own", _IMAGE)
    both = index(("s390x", small("other")), (architecture(), _IMAGE))
    fake.put_manifest("app", "v1", both, OCI_INDEX)
    assert (await cache.pull(f"{fake.host}/app:v1")).digest == _IMAGE.digest
    assert (await cache.pull(f"{fake.host}/app@{sha256(both)}")).digest == _IMAGE.digest
    fake.put_manifest("app", "v2", index(("s390x", _IMAGE), ("mips", _IMAGE)), OCI_INDEX)
    with pytest.raises(BadImage, match=r"no image for platform linux/.*; there is: linux/mips, linux/s390x"):
        await cache.pull(f"{fake.host}/app:v2")


async def test_image_for_another_host_is_refused_before_its_layers_come(cache: ImageCache, fake: FakeRegistry) -> None:
    foreign = ImageParts(_IMAGE.layers, architecture="s390x")
    with pytest.raises(BadImage, match="no image for platform"):
        await cache.pull(fake.add("app", "v1", foreign))
    assert fake.times(f"/blobs/{_IMAGE.layers[0].digest}") == 0


async def test_layer_that_does_not_match_is_named(cache: ImageCache, fake: FakeRegistry) -> None:
    reference, digest = fake.add("app", "v1", _IMAGE), _IMAGE.layers[0].digest
    fake.blobs[digest] = b"x" * len(fake.blobs[digest])
    with pytest.raises(BadImage, match=f"layer {digest} does not match its digest"):
        await cache.pull(reference)
    assert cache.find(reference) is None
    assert not [name for name in files(cache.root) if digest[7:] in name]


async def test_hostile_layer_is_named_and_leaves_no_image(cache: ImageCache, fake: FakeRegistry) -> None:
    bad = layer(tar(("../../evil", b"x")))
    parts = ImageParts([*_IMAGE.layers, bad], architecture=architecture())
    with pytest.raises(BadLayer, match=rf"layer {bad.digest}: .*\(entry '../../evil'\)"):
        await cache.pull(fake.add("bad", "v1", parts))
    assert cache.list() == []
    assert not [name for name in files(cache.root) if name.startswith(("rootfs", "staging", "images", "names"))]


async def test_absurd_size_is_refused_before_anything_is_fetched(cache: ImageCache, fake: FakeRegistry) -> None:
    kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    huge = {**pointer(kind, b"x"), "size": 10**15}
    manifest = _IMAGE.manifest.replace(b'"layers":[', b'"layers":[' + _json(huge) + b",")
    fake.put_manifest("app", "v1", manifest)
    with pytest.raises(BadImage, match=rf"layer {huge['digest']} says it is {10**15} bytes"):
        await cache.pull(f"{fake.host}/app:v1")
    assert fake.times("/blobs/") == 0


def _json(found: dict[str, object]) -> bytes:
    return str(found).replace("'", '"').encode()


async def test_full_disk_is_no_room_and_leaves_nothing_half_made(small_disk: Path, fake: FakeRegistry) -> None:
    big = ImageParts([layer(tar(("big", os.urandom(6 << 20))))], architecture=architecture())
    reference = fake.add("big", "v1", big)
    async with opened_cache(small_disk) as cache:
        with pytest.raises(NoRoom, match="no space left on this node's disk") as caught:
            await cache.pull(reference)
        assert caught.value.scope == "host"
        assert cache.list() == []
        assert not [name for name in files(cache.root) if name.startswith(("partial", "rootfs", "staging"))]
        await cache.prune(set)
        assert (await cache.pull("hawker/hello")).rootfs_bytes > 0


# Local images and uploads.


async def test_local_forms_are_read_on_the_node(cache: ImageCache, tmp_path: Path) -> None:
    for name, content in layout(_IMAGE, tags=["v1"]).items():
        (tmp_path / "layout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "layout" / name).write_bytes(content)
    (tmp_path / "docker.tar").write_bytes(tar(*docker_files(_IMAGE).items()))
    image = await cache.pull(f"oci:{tmp_path}/layout:v1")
    assert (image.digest, image.registry) == (_IMAGE.digest, "")
    saved = await cache.pull(f"docker-archive:{tmp_path}/docker.tar")
    assert saved.config == image.config
    assert cache.find(f"docker-archive:{tmp_path}/docker.tar") == saved


async def test_local_forms_can_be_switched_off(tmp_path: Path) -> None:
    async with opened_cache(tmp_path, ImageSettings()) as cache:
        with pytest.raises(NotServed):
            await cache.pull("oci:/etc")


async def test_uploaded_image_is_found_by_its_name_without_a_registry(cache: ImageCache) -> None:
    archive = tar(*layout(_IMAGE, tags=["ignored"]).items())
    image = await cache.import_archive(chunks(archive), "mine:v1")
    assert (image.digest, image.registry, image.tag) == (_IMAGE.digest, "", "v1")
    assert cache.find("mine:v1") == image
    assert await cache.pull("mine:v1") == image
    assert (await cache.resolve("mine:v1")).digest == image.digest
    assert files(cache.root / "staging") == []


async def test_upload_without_a_name_goes_by_its_own_or_by_digest(cache: ImageCache) -> None:
    named = await cache.import_archive(chunks(tar(*docker_files(_IMAGE, "host.example/app:v7").items())))
    assert cache.find("host.example/app:v7") == named
    nameless = await cache.import_archive(chunks(tar(*layout(small("other")).items())))
    assert nameless.reference == nameless.digest
    assert cache.find(nameless.digest) == nameless
    assert (await cache.pull(nameless.digest)) == nameless


@pytest.mark.parametrize(
    ("archive", "error", "says"),
    [
        (b"junk" * 1000, BadImage, "the archive is not an intact tar archive"),
        (b"", BadImage, "is not an archive of docker save"),
        (bytes(200_000), TooLarge, "the archive is over 100000 bytes"),
        (
            tar(*layout(ImageParts([layer(tar(("../x", b"")))], architecture=architecture())).items()),
            BadLayer,
            "upwards",
        ),
    ],
)
async def test_bad_upload_is_refused_and_leaves_nothing(
    tmp_path: Path, archive: bytes, error: type[Exception], says: str
) -> None:
    async with opened_cache(tmp_path, ImageSettings(limits=ImageLimits(max_import_bytes=100_000))) as cache:
        with pytest.raises(error, match=says):
            await cache.import_archive(chunks(archive), "mine:v1")
        assert cache.find("mine:v1") is None
        assert not [name for name in files(cache.root) if not name.startswith(("blobs", "readers"))]


async def test_digest_that_is_not_here_is_not_found(cache: ImageCache) -> None:
    nowhere = Digest("sha256:" + "0" * 64)
    with pytest.raises(NotFound, match=f"image {nowhere} is not on this node"):
        await cache.pull(nowhere)
    with pytest.raises(NotFound, match="has no block image on this node"):
        cache.block_path(nowhere)


# Crashes.


async def test_images_are_there_after_a_restart(tmp_path: Path, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    async with opened_cache(tmp_path) as cache:
        image = await cache.pull(reference)
    async with opened_cache(tmp_path) as cache:
        assert cache.find(reference) == image
        assert cache.list() == [image]
        assert await cache.pull(reference) == image


async def test_crash_between_any_two_steps_costs_only_the_step(tmp_path: Path, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    async with opened_cache(tmp_path) as cache:
        resolved = await cache.resolve(reference)
    async with opened_cache(tmp_path) as cache:
        await cache.fetch(resolved)
    fake.asked.clear()
    async with opened_cache(tmp_path) as cache:
        image = await cache.build(resolved)
    assert fake.asked == []
    async with opened_cache(tmp_path) as cache:
        assert await cache.build(resolved) == image


@pytest.mark.parametrize("lost", ["layers", "everything"])
async def test_image_pruned_between_two_steps_comes_again(cache: ImageCache, fake: FakeRegistry, lost: str) -> None:
    resolved = await cache.resolve(fake.add("app", "v1", _IMAGE))
    await cache.fetch(resolved)
    for blob in (cache.root / "blobs/sha256").iterdir():
        if lost == "everything" or blob.name != resolved.digest[7:]:
            blob.unlink()
    assert (await cache.build(resolved)).digest == _IMAGE.digest


async def test_upload_that_was_pruned_must_be_imported_again(cache: ImageCache) -> None:
    await cache.import_archive(chunks(tar(*layout(_IMAGE).items())), "mine:v1")
    resolved = await cache.resolve("mine:v1")
    await cache.prune(set)
    with pytest.raises(NotFound, match="was imported, and no node that can be asked has it: import it again"):
        await cache.fetch(resolved)


async def test_half_made_things_are_gone_after_a_crash(tmp_path: Path) -> None:
    root = tmp_path / "images"
    async with opened_cache(tmp_path):
        pass
    orphan = root / f"rootfs/{'a' * 64}.erofs"
    halves = [root / f"rootfs/{'b' * 64}.erofs.tmp", root / "staging/tmpx/root/sudo", root / "images/x.tmp", orphan]
    for half in halves:
        half.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(b"half")
    young, old = root / f"partial/{'c' * 64}", root / f"partial/{'d' * 64}"
    young.write_bytes(b"half")
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    async with opened_cache(tmp_path):
        assert files(root) == [f"partial/{'c' * 64}"]


async def test_block_image_that_is_lost_is_made_again(cache: ImageCache, fake: FakeRegistry) -> None:
    reference = fake.add("app", "v1", _IMAGE)
    image = await cache.pull(reference)
    cache.block_path(image.digest).unlink()
    assert cache.find(reference) is None
    assert (await cache.pull(reference)).digest == image.digest
    assert cache.block_path(image.digest).exists()


async def test_nobody_else_may_look_inside(cache: ImageCache) -> None:
    assert cache.root.stat().st_mode & 0o777 == 0o700
