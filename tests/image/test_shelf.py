"""Facts about the shelf: what is on it survives a restart, whole."""

from pathlib import Path

import pytest

from hawker.ids import Digest
from hawker.image.config import Image, ImageConfig, Layer
from hawker.image.shelf import Name, Shelf

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


def opened(root: Path) -> Shelf:
    shelf = Shelf(root)
    shelf.open()
    return shelf


async def test_images_and_names_survive_a_restart(tmp_path: Path) -> None:
    shelf = opened(tmp_path)
    for each in (image(_B, 2.0), image(_A, 1.0)):
        await shelf.put_image(each)
    await shelf.put_name(Name(reference="app:v1", digest=_A))
    await shelf.put_name(Name(reference="app:v2", digest=_A, imported=True))
    again = opened(tmp_path)
    assert again.images() == [image(_A, 1.0), image(_B, 2.0)]
    assert again.names_of(_A) == ("app:v1", "app:v2")
    assert again.name("app:v2") == Name(reference="app:v2", digest=_A, imported=True)
    assert again.name("app:v3") is None


async def test_name_moves_to_what_it_means_last(tmp_path: Path) -> None:
    shelf = opened(tmp_path)
    await shelf.put_name(Name(reference="app:v1", digest=_A))
    await shelf.put_name(Name(reference="app:v1", digest=_B))
    assert opened(tmp_path).name("app:v1") == Name(reference="app:v1", digest=_B)


async def test_removed_image_takes_its_names_with_it(tmp_path: Path) -> None:
    shelf = opened(tmp_path)
    await shelf.put_image(image(_A))
    await shelf.put_name(Name(reference="app:v1", digest=_A))
    await shelf.put_name(Name(reference="app:v2", digest=_B))
    shelf.remove(_A)
    again = opened(tmp_path)
    assert again.image(_A) is None
    assert again.name("app:v1") is None
    assert again.name("app:v2") is not None


async def test_what_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    await opened(tmp_path).put_image(image(_A))
    (tmp_path / "images/half.tmp").write_bytes(b'{"dig')
    assert opened(tmp_path).images() == [image(_A)]
    assert not (tmp_path / "images/half.tmp").exists()


async def test_last_use_is_remembered(tmp_path: Path) -> None:
    shelf = opened(tmp_path)
    await shelf.put_image(image(_A))
    shelf.touch(_A, 12345.0)
    assert opened(tmp_path).used_at(_A) == 12345.0


@pytest.mark.parametrize("content", [b"", b'{"digest": "sha256:', b"[]", b'{"digest": 7}', b"\xff\xfe"])
async def test_a_damaged_file_is_named_and_costs_no_other_image(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = opened(tmp_path)
    for digest in (_A, _B):
        await shelf.put_image(image(digest))
        await shelf.put_name(Name(reference=f"app:{digest[-1]}", digest=digest))
    damaged = [tmp_path / "images" / f"{'a' * 64}.json", next((tmp_path / "names").glob("*.json"))]
    for file in damaged:
        file.write_bytes(content)
    again = opened(tmp_path)
    assert again.images() == [image(_B)]
    assert len([name for name in ("app:a", "app:b") if again.name(name)]) == 1
    assert {getattr(record, "path", "") for record in caplog.records} == set(map(str, damaged))
    assert all("pull" in getattr(record, "todo", "") for record in caplog.records)


async def test_a_damaged_image_is_whole_once_it_is_put_again(tmp_path: Path) -> None:
    shelf = opened(tmp_path)
    await shelf.put_image(image(_A))
    (tmp_path / "images" / f"{'a' * 64}.json").write_bytes(b"torn")
    again = opened(tmp_path)
    assert not again.is_whole
    await again.put_image(image(_A))
    assert again.is_whole and opened(tmp_path).images() == [image(_A)]
