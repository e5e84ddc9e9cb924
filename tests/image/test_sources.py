"""Facts about where a reference leads."""

import os
from pathlib import Path

import pytest

from hawker.clock import ManualClock
from hawker.errors import NotFound, NotServed
from hawker.image.failure import BadImage
from hawker.image.limits import ImageSettings
from hawker.image.reference import parse
from hawker.image.sources import ImageSources
from hawker.image.transport import RegistryTransport
from tests.fixtures.parts import ImageParts, docker_files, layer, layout, tar
from tests.image.fake_registry import FakeRegistry

pytestmark = pytest.mark.anyio

_IMAGE = ImageParts([layer(tar(("a", b"1")))])


@pytest.fixture
def sources(tmp_path: Path, transport: RegistryTransport) -> ImageSources:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "hello").write_bytes(b"\x7fELF")
    return ImageSources(
        ImageSettings(allow_local=True), transport, ManualClock(), lambda: tmp_path / "hello", tmp_path / "scratch"
    )


async def root_manifest(sources: ImageSources, reference: str) -> bytes:
    async with sources.open(parse(reference), None) as source:
        return (await source.manifest(None)).content


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


async def test_every_kind_of_reference_leads_to_its_image(
    sources: ImageSources, fake: FakeRegistry, tmp_path: Path
) -> None:
    directory = written(tmp_path / "layout", layout(_IMAGE, tags=["v1"]))
    (tmp_path / "oci.tar").write_bytes(tar(*layout(_IMAGE).items()))
    (tmp_path / "docker.tar").write_bytes(tar(*docker_files(_IMAGE).items()))
    assert await root_manifest(sources, fake.add("app", "v1", _IMAGE)) == _IMAGE.manifest
    assert await root_manifest(sources, f"oci:{directory}:v1") == _IMAGE.manifest
    assert await root_manifest(sources, f"oci-archive:{tmp_path}/oci.tar") == _IMAGE.manifest
    assert b"manifest.v1+json" in await root_manifest(sources, f"docker-archive:{tmp_path}/docker.tar")
    assert b"manifest.v1+json" in await root_manifest(sources, "hawker/hello")
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_sample_image_is_made_once_for_each_program(sources: ImageSources, tmp_path: Path) -> None:
    async with sources.open(parse("hawker/hello"), None) as first:
        os.utime(tmp_path / "hello", ns=(1, (tmp_path / "hello").stat().st_mtime_ns))  # it was read meanwhile
        async with sources.open(parse("hawker/hello"), None) as second:
            assert first is second
    (tmp_path / "hello").write_bytes(b"\x7fELF of a newer version")
    async with sources.open(parse("hawker/hello"), None) as third:
        assert (await third.manifest(None)).content != (await first.manifest(None)).content


async def test_archive_of_the_other_kind_is_refused(sources: ImageSources, tmp_path: Path) -> None:
    (tmp_path / "docker.tar").write_bytes(tar(*docker_files(_IMAGE).items()))
    with pytest.raises(BadImage, match=r"is not an OCI image layout"):
        await root_manifest(sources, f"oci-archive:{tmp_path}/docker.tar")


async def test_upload_may_be_of_either_kind(sources: ImageSources, tmp_path: Path) -> None:
    for files in (layout(_IMAGE), docker_files(_IMAGE)):
        (tmp_path / "upload").write_bytes(tar(*files.items()))
        async with sources.archive(tmp_path / "upload", "the archive", None) as found:
            assert (await found.source.manifest(None)).content


@pytest.mark.parametrize("reference", ["oci:/etc", "oci-archive:/etc/passwd", "docker-archive:/etc/passwd"])
async def test_files_of_the_node_are_not_read_where_that_is_off(
    transport: RegistryTransport, tmp_path: Path, reference: str
) -> None:
    closed = ImageSources(ImageSettings(), transport, ManualClock(), Path, tmp_path)
    with pytest.raises(NotServed, match="upload with `hawker images import`"):
        await root_manifest(closed, reference)


async def test_error_about_a_file_shows_nothing_of_it(sources: ImageSources, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden\n" * 200)
    with pytest.raises(BadImage) as caught:
        await root_manifest(sources, f"docker-archive:{tmp_path}/secret")
    assert "hidden" not in str(caught.value)


async def test_digest_that_is_not_here_is_not_found(sources: ImageSources) -> None:
    with pytest.raises(NotFound, match="is not on this node"):
        await root_manifest(sources, "sha256:" + "0" * 64)
