"""Facts about manifests: what is read, and what is refused before anything is fetched."""

import msgspec
import pytest

from hawker.ids import Digest
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.manifest import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    Compression,
    Descriptor,
    Index,
    Manifest,
    Platform,
    check_platform,
    choose,
    compression_of,
    find_manifest,
    host_platform,
    manifest_digest,
    named,
    read_manifest,
)
from hawker.image.reference import Reference, parse
from hawker.image.source import LocalSource, Stored
from tests.fixtures.parts import ImageParts, Packing, index, index_of, layer, sha256, tar

_LIMITS = ImageLimits()
_DIGEST = "sha256:" + "0" * 64


def test_manifest_is_read() -> None:
    parts = ImageParts([layer(tar(("a", b"1")), packing) for packing in Packing])
    found = read_manifest(parts.manifest, _LIMITS)
    assert isinstance(found, Manifest)
    assert [each.digest for each in found.layers] == [each.digest for each in parts.layers]
    assert [compression_of(each) for each in found.layers] == list(Compression)
    assert found.size_bytes == sum(len(each.blob) for each in parts.layers)
    assert found.blobs == set(parts.blobs)


def test_index_is_read() -> None:
    parts = ImageParts([])
    found = read_manifest(index(("amd64", parts), ("arm64", parts)), _LIMITS)
    assert isinstance(found, Index)
    assert [each.platform.architecture for each in found.manifests if each.platform] == ["amd64", "arm64"]


@pytest.mark.parametrize("kind", [OCI_INDEX, DOCKER_INDEX])
def test_index_without_its_own_type_is_known_by_the_servers(kind: str) -> None:
    assert isinstance(read_manifest(b'{"schemaVersion": 2, "manifests": []}', _LIMITS, f"{kind}; charset=utf-8"), Index)


def docker(**changes: object) -> bytes:
    """A manifest of Docker's, with some members changed."""
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": _DIGEST, "size": 10}
    layers = [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": _DIGEST, "size": 10}]
    whole = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": layers}
    return msgspec.json.encode({**whole, **changes})


def a_layer(**changes: object) -> bytes:
    kind = "application/vnd.oci.image.layer.v1.tar+gzip"
    return docker(layers=[{"mediaType": kind, "digest": _DIGEST, "size": 10, **changes}])


def test_docker_manifest_is_read() -> None:
    assert isinstance(read_manifest(docker(), _LIMITS), Manifest)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read"),
        (b"<html>", "cannot be read"),
        (b"{}", "schema 1"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "schema 1"),
        (docker(mediaType="application/vnd.docker.distribution.manifest.v1+prettyjws"), "schema 1"),
        (docker(config=None), "not of an image"),
        (docker(layers=None), "not of an image"),
        (docker(config={"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": _DIGEST}), "an artifact"),
        (a_layer(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "is foreign"),
        (a_layer(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"), "is foreign"),
        (a_layer(urls=["http://elsewhere"]), "is foreign"),
        (a_layer(mediaType="application/wasm"), "unknown type 'application/wasm'"),
        (a_layer(size=-1), "says it is -1 bytes"),
        (a_layer(size=10**15), f"says it is {10**15} bytes"),
        (a_layer(size="1"), "cannot be read"),
        (a_layer(digest="sha256:../../../etc/passwd"), "is not sha256:"),
        (a_layer(digest="md5:00"), "is not sha256:"),
        (docker(layers=[{"mediaType": "x", "digest": _DIGEST, "size": 1}] * 600), "has 600 layers"),
    ],
)
def test_bad_manifest_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(BadImage, match=says):
        read_manifest(content, _LIMITS)


def test_layers_that_are_too_large_together_are_refused() -> None:
    kind = "application/vnd.oci.image.layer.v1.tar"
    layers = [{"mediaType": kind, "digest": _DIGEST, "size": 60}] * 2
    with pytest.raises(BadImage, match="the image is 120 bytes packed; 100 is the limit"):
        read_manifest(docker(layers=layers), ImageLimits(max_image_bytes=100))


def test_digest_of_a_descriptor_is_checked() -> None:
    assert manifest_digest(Descriptor(digest=_DIGEST)) == _DIGEST
    with pytest.raises(BadImage):
        manifest_digest(Descriptor(digest="latest"))


_AMD = Platform(os="linux", architecture="amd64")
_ARM = Platform(os="linux", architecture="arm64", variant="v8")


def entry(name: str, platform: Platform | None, **annotations: str) -> Descriptor:
    return Descriptor(digest=name, platform=platform, annotations=annotations or None)


def test_this_hosts_platform_is_linux() -> None:
    assert host_platform().os == "linux"


def test_own_architecture_is_chosen() -> None:
    entries = (entry("win", Platform(os="windows", architecture="amd64")), entry("arm", _ARM), entry("amd", _AMD))
    assert choose(Index(manifests=entries), _AMD).digest == "amd"
    assert choose(Index(manifests=entries), _ARM).digest == "arm"


def test_own_variant_goes_before_none_before_others() -> None:
    plain, v9 = Platform(os="linux", architecture="arm64"), Platform(os="linux", architecture="arm64", variant="v9")
    assert choose(Index(manifests=(entry("v9", v9), entry("plain", plain), entry("v8", _ARM))), _ARM).digest == "v8"
    assert choose(Index(manifests=(entry("v9", v9), entry("plain", plain))), _ARM).digest == "plain"
    assert choose(Index(manifests=(entry("v9", v9),)), _ARM).digest == "v9"


def test_only_entry_without_a_platform_is_chosen() -> None:
    assert choose(Index(manifests=(entry("it", None),)), _AMD).digest == "it"


def test_attestation_is_no_image() -> None:
    about = Descriptor(
        digest="about",
        platform=Platform(os="unknown", architecture="unknown"),
        annotations={"vnd.docker.reference.type": "attestation-manifest"},
    )
    assert choose(Index(manifests=(about, entry("amd", _AMD))), _AMD).digest == "amd"


def test_absent_platform_is_refused_with_what_there_is() -> None:
    with pytest.raises(BadImage, match="no image for platform linux/amd64; there is: linux/arm64/v8"):
        choose(Index(manifests=(entry("arm", _ARM),)), _AMD)
    with pytest.raises(BadImage, match="there is: none"):
        choose(Index(manifests=()), _AMD)


def test_config_of_another_architecture_is_refused() -> None:
    check_platform("linux", "amd64", _AMD)
    check_platform("", "", _AMD)
    with pytest.raises(BadImage, match="no image for platform linux/amd64; there is: linux/s390x"):
        check_platform("linux", "s390x", _AMD)


pytestmark = pytest.mark.anyio

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
