"""Facts about the index: what is on it survives a restart, whole."""

from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.config import Image, ImageConfig, Layer
from hawker.image.image_index import ImageIndex, ImageName, ImageNames
from hawker.image.manifest import Resolved, named
from hawker.image.reference import parse

pytestmark = pytest.mark.anyio

_A, _B = (Digest(f"sha256:{letter * 64}") for letter in "ab")


def image(digest: Digest, at: float = 1.0, *layers: Digest) -> Image:
    return Image(
        digest=digest,
        reference="app:v1",
        registry="",
        repository="app",
        tag="v1",
        config=ImageConfig(cmd=("x",)),
        config_digest=Digest("sha256:" + "f" * 64),
        layers=tuple(Layer(digest=layer, size=1, media_type="") for layer in layers),
        size_bytes=1,
        rootfs_bytes=2,
        rootfs_type="erofs",
        created_at=at,
    )


def opened(root: Path) -> ImageIndex:
    index = ImageIndex(root)
    index.open()
    return index


async def test_images_and_names_survive_a_restart(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for each in (image(_B, 2.0), image(_A, 1.0)):
        await index.put_image(each)
    await index.put_name(ImageName(reference="app:v1", digest=_A))
    await index.put_name(ImageName(reference="app:v2", digest=_A, imported=True))
    again = opened(tmp_path)
    assert again.images() == [image(_A, 1.0), image(_B, 2.0)]
    assert again.names_of(_A) == ("app:v1", "app:v2")
    assert again.name("app:v2") == ImageName(reference="app:v2", digest=_A, imported=True)
    assert again.name("app:v3") is None


async def test_blobs_are_needed_as_long_as_an_image_is_made_of_them(tmp_path: Path) -> None:
    shared, own = (Digest(f"sha256:{letter * 64}") for letter in "cd")
    index = opened(tmp_path)
    assert not index.needs(shared)
    await index.put_image(image(_A, 1.0, shared, own))
    await index.put_image(image(_B, 2.0, shared))
    assert all(map(index.needs, (_A, shared, own))) and opened(tmp_path).needs(own)
    index.remove(_A)
    assert index.needs(shared) and not index.needs(own) and not index.needs(_A)
    index.remove(_B)
    assert not index.needs(shared)


async def test_name_moves_to_what_it_means_last(tmp_path: Path) -> None:
    index = opened(tmp_path)
    await index.put_name(ImageName(reference="app:v1", digest=_A))
    await index.put_name(ImageName(reference="app:v1", digest=_B))
    assert opened(tmp_path).name("app:v1") == ImageName(reference="app:v1", digest=_B)


async def test_removed_image_takes_its_names_with_it(tmp_path: Path) -> None:
    index = opened(tmp_path)
    await index.put_image(image(_A))
    await index.put_name(ImageName(reference="app:v1", digest=_A))
    await index.put_name(ImageName(reference="app:v2", digest=_B))
    index.remove(_A)
    again = opened(tmp_path)
    assert again.image(_A) is None
    assert again.name("app:v1") is None
    assert again.name("app:v2") is not None


async def test_file_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    await opened(tmp_path).put_image(image(_A))
    (tmp_path / "images/half.tmp").write_bytes(b'{"dig')
    assert opened(tmp_path).images() == [image(_A)]
    assert not (tmp_path / "images/half.tmp").exists()


async def test_last_use_is_remembered(tmp_path: Path) -> None:
    index = opened(tmp_path)
    await index.put_image(image(_A))
    index.touch(_A, 12345.0)
    assert opened(tmp_path).used_at(_A) == 12345.0


@pytest.mark.parametrize("content", [b"", b'{"digest": "sha256:', b"[]", b'{"digest": 7}', b"\xff\xfe"])
async def test_a_damaged_file_is_named_and_costs_no_other_image(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = opened(tmp_path)
    for digest in (_A, _B):
        await index.put_image(image(digest))
        await index.put_name(ImageName(reference=f"app:{digest[-1]}", digest=digest))
    damaged = [tmp_path / "images" / f"{'a' * 64}.json", next((tmp_path / "names").glob("*.json"))]
    for file in damaged:
        file.write_bytes(content)
    again = opened(tmp_path)
    assert again.images() == [image(_B)]
    assert len([name for name in ("app:a", "app:b") if again.name(name)]) == 1
    assert {getattr(record, "path", "") for record in caplog.records} == set(map(str, damaged))
    assert all("pull" in getattr(record, "todo", "") for record in caplog.records)


async def test_a_damaged_image_is_whole_once_it_is_put_again(tmp_path: Path) -> None:
    index = opened(tmp_path)
    await index.put_image(image(_A))
    (tmp_path / "images" / f"{'a' * 64}.json").write_bytes(b"torn")
    again = opened(tmp_path)
    assert not again.is_whole
    await again.put_image(image(_A))
    assert again.is_whole and opened(tmp_path).images() == [image(_A)]


_A, _B = (Digest(f"sha256:{letter * 64}") for letter in "ab")


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    return opened(tmp_path)


def resolved(text: str, digest: Digest = _A, *, imported: bool = False) -> Resolved:
    return named(parse(text), digest, 1, imported=imported)


async def test_name_counts_once_its_image_is_complete(index: ImageIndex) -> None:
    naming = ImageNames(index)
    await naming.resolved(resolved("app:v1"))
    assert naming.lookup(parse("app:v1")) is None
    await index.put_image(image(_A))
    await naming.complete(resolved(f"docker.io/library/app@{_A}"))
    assert naming.lookup(parse("app:v1")) == _A
    assert index.names_of(_A) == ("docker.io/library/app:v1",)


async def test_old_meaning_holds_while_the_new_image_is_on_its_way(index: ImageIndex) -> None:
    naming = ImageNames(index)
    await index.put_image(image(_A))
    await naming.resolved(resolved("app:v1", _A))
    await naming.resolved(resolved("app:v1", _B))
    assert naming.lookup(parse("app:v1")) == _A
    await index.put_image(image(_B))
    await naming.complete(resolved("app:v1", _B))
    assert naming.lookup(parse("app:v1")) == _B


async def test_image_goes_by_what_users_wrote(index: ImageIndex) -> None:
    naming = ImageNames(index)
    pinned = resolved(f"app@{_A}")
    assert naming.best(pinned) == pinned
    await naming.resolved(resolved("app:v1"))
    assert naming.best(pinned) == resolved("app:v1")


async def test_bare_digest_is_a_name_only_without_a_better_one(index: ImageIndex) -> None:
    naming = ImageNames(index)
    await index.put_image(image(_A))
    await naming.complete(resolved(f"app@{_A}"))
    assert index.names_of(_A) == (f"docker.io/library/app@{_A}",)
    await naming.complete(resolved("app:v1"))
    await naming.complete(resolved(f"other@{_A}"))
    assert index.names_of(_A) == ("docker.io/library/app:v1", f"docker.io/library/app@{_A}")


def test_digest_leads_to_itself(index: ImageIndex) -> None:
    naming = ImageNames(index)
    assert naming.lookup(parse(_A)) == _A
    assert naming.lookup(parse(f"app@{_A}")) == _A
    assert naming.lookup(parse("hawker/hello")) is None


async def test_imported_names_are_known(index: ImageIndex) -> None:
    naming = ImageNames(index)
    await index.put_image(image(_A))
    await naming.complete(resolved("app:v1", imported=True))
    assert naming.imported(parse("app:v1")) is not None
    assert naming.imported(parse("app:v2")) is None


async def test_names_that_never_come_are_forgotten(index: ImageIndex) -> None:
    naming = ImageNames(index)
    for number in range(1100):
        await naming.resolved(resolved("app:v1", Digest(f"sha256:{number:064}")))
    first, last = (resolved("x:y", Digest(f"sha256:{number:064}")) for number in (0, 1099))
    assert naming.best(first) == first
    pinned = resolved(f"app@{last.digest}", last.digest)
    assert naming.best(pinned).reference == "docker.io/library/app:v1"
