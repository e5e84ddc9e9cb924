"""Facts about archives of `docker save`."""

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hawker.image.failure import BadImage
from hawker.image.layout import LocalImage, TarBundle, open_docker
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Manifest, read_manifest
from tests.fixtures.parts import ImageParts, docker_files, layer, sha256, tar

pytestmark = pytest.mark.anyio

_IMAGE = ImageParts([layer(tar(("a", b"1"))), layer(tar(("b", b"2")))], {"Cmd": ["a"]})


def nothing() -> None:
    pass


def opened(folder: Path, files: dict[str, bytes], check: Callable[[], None] = nothing) -> LocalImage:
    (folder / "a.tar").write_bytes(tar(*files.items()))
    limits = ImageLimits(max_layers=20)
    return open_docker(TarBundle(folder / "a.tar", "a.tar", limits, nothing), limits, check)


async def manifest_of(image: LocalImage) -> Manifest:
    found = read_manifest((await image.source.manifest(None)).content, ImageLimits())
    assert isinstance(found, Manifest)
    return found


async def test_manifest_is_made_the_same_each_time(tmp_path: Path) -> None:
    first = opened(tmp_path, docker_files(_IMAGE, "app:v1"))
    second = opened(tmp_path, docker_files(_IMAGE))
    assert await manifest_of(first) == await manifest_of(second)
    assert (first.name, second.name) == ("app:v1", "")
    found = await manifest_of(first)
    assert found.config.digest == sha256(_IMAGE.config)
    assert [each.digest for each in found.layers] == [sha256(each.archive) for each in _IMAGE.layers]
    async with first.source.blob(found.layers[1], 0) as piece:
        assert b"".join([chunk async for chunk in piece.chunks]) == _IMAGE.layers[1].archive


async def test_packed_layers_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    files = docker_files(_IMAGE)
    files["0/layer.tar"] = gzip.compress(files["0/layer.tar"])
    found = await manifest_of(opened(tmp_path, files))
    assert [each.media_type.endswith("+gzip") for each in found.layers] == [True, False]


async def test_layer_that_is_listed_often_is_read_once(tmp_path: Path) -> None:
    """A list that named one large file again and again kept a thread busy for as long as a call may take."""
    read: list[bool] = []
    image = ImageParts([_IMAGE.layers[0]] * 20)
    files = docker_files(image)
    files["manifest.json"] = msgspec.json.encode([{"Config": "config.json", "Layers": ["0/layer.tar"] * 20}])
    found = opened(tmp_path, files, lambda: read.append(True))
    assert [each.digest for each in (await manifest_of(found)).layers] == [sha256(_IMAGE.layers[0].archive)] * 20
    assert len(read) == 1


def test_layers_are_counted_before_anything_is_read(tmp_path: Path) -> None:
    listed = msgspec.json.encode([{"Config": "nope", "Layers": ["0/layer.tar"] * 21}])
    with pytest.raises(BadImage, match=r"a\.tar has 21 layers; 20 is the limit"):
        opened(tmp_path, {**docker_files(_IMAGE), "manifest.json": listed})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"manifest.json": b"{"}, "manifest.json of a.tar cannot be read"),
        ({"manifest.json": b"[]"}, "has 0 images; one is wanted"),
        ({"manifest.json": msgspec.json.encode([{"Config": "nope", "Layers": []}])}, "it has no 'nope'"),
        ({"manifest.json": msgspec.json.encode([{"Config": "/etc/passwd"}])}, "it has no '/etc/passwd'"),
        ({"manifest.json": msgspec.json.encode([{"Config": "config.json"}])}, "has 0 layers, its config lists 2"),
        ({"0/layer.tar": tar(("evil", b""))}, "does not match its digest"),
        ({"config.json": b"x"}, "config cannot be read"),
    ],
)
def test_bad_archive_is_refused(tmp_path: Path, changes: dict[str, bytes], says: str) -> None:
    with pytest.raises(BadImage, match=says):
        opened(tmp_path, {**docker_files(_IMAGE), **changes})


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match=r"is not an archive of docker save: it has no 'manifest.json'"):
        opened(tmp_path, {"index.json": b"{}"})
