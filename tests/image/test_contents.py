"""Facts about what the store has of an image, and about pins."""

from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.ids import Digest
from hawker.image.blobs import BlobStore
from hawker.image.contents import ImageContents, Pins
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Compression, Platform
from tests.fixtures.parts import ImageParts, layer, tar

_LAYER = layer(tar(("a", b"")))
_IMAGE = ImageParts([_LAYER, _LAYER, layer(tar(("b", b"")))], {"Cmd": ["a"]})
_AMD = Platform(os="linux", architecture="amd64")


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    made = BlobStore(tmp_path)
    made.open()
    made.put(_IMAGE.manifest)
    return made


def test_missing_blobs_count_once(blobs: BlobStore) -> None:
    contents = ImageContents(blobs, ImageLimits())
    manifest = contents.manifest(Digest(_IMAGE.digest))
    assert contents.missing_bytes(manifest) == sum(len(blob) for blob in _IMAGE.blobs.values())
    blobs.put(_LAYER.blob)
    assert contents.missing_bytes(manifest) == sum(len(blob) for blob in _IMAGE.blobs.values()) - len(_LAYER.blob)


def test_config_and_layers_are_told(blobs: BlobStore) -> None:
    contents = ImageContents(blobs, ImageLimits())
    manifest = contents.manifest(Digest(_IMAGE.digest))
    blobs.put(_IMAGE.config)
    assert contents.config(manifest).run.cmd == ("a",)
    contents.check_config(manifest, _AMD)
    layers = contents.layers(manifest)
    assert [each.digest for each in layers] == [each.digest for each in _IMAGE.layers]
    assert {each.compression for each in layers} == {Compression.GZIP}


def test_config_for_another_host_or_other_layers_is_refused(blobs: BlobStore) -> None:
    contents = ImageContents(blobs, ImageLimits())
    blobs.put(_IMAGE.config)
    manifest = contents.manifest(Digest(_IMAGE.digest))
    with pytest.raises(BadImage, match="no image for platform linux/arm64; there is: linux/amd64"):
        contents.check_config(manifest, Platform(os="linux", architecture="arm64"))
    shorter = type(manifest)(config=manifest.config, layers=manifest.layers[:1])
    with pytest.raises(BadImage, match="the image has 1 layers, its config lists 3"):
        contents.check_config(shorter, _AMD)


def test_manifest_that_is_gone_is_told(blobs: BlobStore) -> None:
    with pytest.raises(Unavailable, match="is not here any more; resolve it again"):
        ImageContents(blobs, ImageLimits()).manifest(Digest("sha256:" + "0" * 64))


def test_pin_holds_until_the_last_holder_lets_go() -> None:
    pins, a, b = Pins(), Digest("a"), Digest("b")
    with pins.hold(a, b):
        with pytest.raises(ValueError, match="no"), pins.hold(a, a):
            raise ValueError("no")
        assert pins.has(a) and pins.has(b)
    assert not pins.has(a) and not pins.has(b)
