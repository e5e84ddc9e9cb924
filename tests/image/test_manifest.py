"""Facts about manifests: what is read, and what is refused before anything is fetched."""

import msgspec
import pytest

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
    compression_of,
    manifest_digest,
    read_manifest,
)
from tests.fixtures.parts import ImageParts, Packing, index, layer, tar

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
