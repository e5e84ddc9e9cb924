"""Facts about finding the one manifest that a reference means."""

import pytest

from hawker.ids import Digest
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.local import LocalSource
from hawker.image.manifest import Platform
from hawker.image.reference import Reference, parse
from hawker.image.resolve import find_manifest, named
from hawker.image.source import Stored
from tests.fixtures.parts import ImageParts, index, index_of, layer, sha256, tar

pytestmark = pytest.mark.anyio

_AMD = Platform(os="linux", architecture="amd64")
_IMAGE = ImageParts([layer(tar(("a", b"")))])
_OTHER = ImageParts([layer(tar(("b", b"")))], architecture="arm64")
_INDEX = index(("arm64", _OTHER), ("amd64", _IMAGE))
_D = Digest(_IMAGE.digest)


class Kept(LocalSource):
    """A source of some manifests; the first one is what the reference names."""

    def __init__(self, *manifests: bytes) -> None:
        contents = {Digest(sha256(each)): each for each in manifests}
        super().__init__(Digest(sha256(manifests[0])), contents.get, 1 << 20)


class Lying(Kept):
    async def manifest(self, digest: Digest | None) -> Stored:
        return Stored(_OTHER.manifest)


async def test_plain_manifest_is_found() -> None:
    assert await find_manifest(Kept(_IMAGE.manifest), None, _AMD, ImageLimits()) == _IMAGE.manifest


@pytest.mark.parametrize("pinned", [None, Digest(sha256(_INDEX))])
async def test_index_leads_to_this_platforms_manifest(pinned: Digest | None) -> None:
    source = Kept(_INDEX, _OTHER.manifest, _IMAGE.manifest)
    assert await find_manifest(source, pinned, _AMD, ImageLimits()) == _IMAGE.manifest


async def test_manifest_of_another_digest_is_refused() -> None:
    with pytest.raises(BadImage, match=f"manifest {_D} does not match its digest: what came has {_OTHER.digest}"):
        await find_manifest(Lying(_OTHER.manifest), _D, _AMD, ImageLimits())


async def test_endless_indexes_are_refused() -> None:
    depths = [_INDEX]
    for _ in range(6):
        depths.append(index_of(depths[-1]))
    with pytest.raises(BadImage, match="nested deeper than 4"):
        await find_manifest(Kept(*reversed(depths), _IMAGE.manifest), None, _AMD, ImageLimits())


@pytest.mark.parametrize(
    ("text", "imported", "wanted"),
    [
        ("host.example/a/b:v1", False, ("host.example", "a/b", "v1")),
        (f"host.example/a/b@{_D}", False, ("host.example", "a/b", "")),
        ("app:v1", True, ("", "library/app", "v1")),
        ("hawker/hello", False, ("", "hawker/hello", "latest")),
        ("oci:/images/web:v1", False, ("", "oci:/images/web:v1", "")),
    ],
)
def test_image_is_named_after_its_reference(text: str, imported: bool, wanted: tuple[str, str, str]) -> None:
    reference: Reference = parse(text)
    found = named(reference, _D, 7, imported=imported)
    assert (found.registry, found.repository, found.tag) == wanted
    assert (found.reference, found.digest, found.size_bytes) == (str(reference), _D, 7)
