"""Facts about OCI layouts."""

from pathlib import Path

import pytest

from hawker.image.failure import BadImage
from hawker.image.layout import DirectoryBundle, open_layout
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Platform
from tests.fixtures.parts import ImageParts, layer, layout, tar

pytestmark = pytest.mark.anyio

_AMD = Platform(os="linux", architecture="amd64")
_ONE = ImageParts([layer(tar(("one", b"")))])
_TWO = ImageParts([layer(tar(("two", b"")))])


def bundle(folder: Path, files: dict[str, bytes]) -> DirectoryBundle:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return DirectoryBundle(folder)


async def test_only_image_is_found_without_a_tag(tmp_path: Path) -> None:
    found = open_layout(bundle(tmp_path, layout(_ONE, tags=["v1"])), None, _AMD, ImageLimits())
    assert (await found.source.manifest(None)).content == _ONE.manifest
    assert found.name == "v1"


async def test_tag_tells_images_apart(tmp_path: Path) -> None:
    both = bundle(tmp_path, layout(_ONE, _TWO, tags=["v1", "v2"]))
    found = open_layout(both, "v2", _AMD, ImageLimits())
    assert (await found.source.manifest(None)).content == _TWO.manifest
    with pytest.raises(BadImage, match="has no image tagged 'v3'; there is: v1, v2"):
        open_layout(both, "v3", _AMD, ImageLimits())
    with pytest.raises(BadImage, match="has several images; name one by its tag"):
        open_layout(both, None, _AMD, ImageLimits())


def test_full_name_goes_before_a_bare_tag(tmp_path: Path) -> None:
    found = open_layout(bundle(tmp_path, layout(_ONE, tags=["v1"], name="host/app:v1")), None, _AMD, ImageLimits())
    assert found.name == "host/app:v1"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "is not an OCI image layout: it has no index.json"),
        ({"index.json": b"{"}, "cannot be read"),
        ({"index.json": _ONE.manifest}, "is not an index"),
        ({"index.json": b" " * 2000}, "is over 1000 bytes"),
        ({"index.json": b'{"schemaVersion": 2, "manifests": []}'}, "there is: none"),
    ],
)
def test_bad_layout_is_refused(tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    with pytest.raises(BadImage, match=says):
        open_layout(bundle(tmp_path, files), None, _AMD, ImageLimits(max_manifest_bytes=1000))
