"""Manifests and indexes of OCI (image-spec) and Docker (schema 2): read, checked and refused. Pure; nothing is fetched.

Invariant: what leaves this file has digests of the right form and sizes that the limits allow.
"""

from enum import Enum

import msgspec

from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.digest import parse_digest
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)

_INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})
_CONFIGS = frozenset({OCI_CONFIG, "application/vnd.docker.container.image.v1+json"})
_SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1"


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_LAYERS = {
    OCI_LAYER: Compression.NONE,
    f"{OCI_LAYER}+gzip": Compression.GZIP,
    f"{OCI_LAYER}+zstd": Compression.ZSTD,
    "application/vnd.docker.image.rootfs.diff.tar": Compression.NONE,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": Compression.GZIP,
    "application/vnd.docker.image.rootfs.diff.tar.zstd": Compression.ZSTD,
}


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What an image runs on, as an index says it: `linux/arm64/v8`."""

    os: str = ""
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pointer to content."""

    media_type: str = ""
    digest: str = ""
    size: int = 0
    urls: tuple[str, ...] | None = None
    platform: Platform | None = None
    annotations: dict[str, str] | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] | None = None
    manifests: tuple[Descriptor, ...] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One image for one platform."""

    config: Layer
    layers: tuple[Layer, ...]

    @property
    def blobs(self) -> frozenset[Digest]:
        return frozenset({self.config.digest, *(layer.digest for layer in self.layers)})

    @property
    def size_bytes(self) -> int:
        return sum(layer.size for layer in self.layers)


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index: one image for several platforms, or a layout's list of images."""

    manifests: tuple[Descriptor, ...]


def read_manifest(content: bytes, limits: ImageLimits, media_type: str = "") -> Manifest | Index:
    """`media_type` is what the server called it; what the document itself says goes before. Raises `BadImage`."""
    try:
        found = msgspec.json.decode(content, type=_Document)
    except msgspec.DecodeError as error:
        raise BadImage(f"the manifest cannot be read: {error}") from error
    kind = found.media_type or media_type.partition(";")[0].strip()
    if found.schema_version != 2 or kind.startswith(_SCHEMA_1):
        raise BadImage(
            "the manifest is of the old schema 1, which is not served: push the image again with newer tools"
        )
    if kind in _INDEXES or (found.manifests is not None and found.config is None):
        return Index(manifests=found.manifests or ())
    if found.config is None or found.layers is None:
        raise BadImage(f"the manifest is not of an image: {kind or 'no config and no layers'}")
    return _checked(found.config, found.layers, limits)


def _checked(config: Descriptor, layers: tuple[Descriptor, ...], limits: ImageLimits) -> Manifest:
    if config.media_type not in _CONFIGS:
        raise BadImage(f"this is not a container image but an artifact of type {config.media_type[:100]!r}")
    if len(layers) > limits.max_layers:
        raise BadImage(f"the image has {len(layers)} layers; {limits.max_layers} is the limit")
    manifest = Manifest(
        config=_blob(config, limits.max_config_bytes, "config"),
        layers=tuple(_layer(layer, limits.max_layer_bytes) for layer in layers),
    )
    if manifest.size_bytes > limits.max_image_bytes:
        raise BadImage(f"the image is {manifest.size_bytes} bytes packed; {limits.max_image_bytes} is the limit")
    return manifest


def media_type_of(content: bytes) -> str:
    """Of a manifest that was read before: what it says itself, else what its config tells."""
    found = msgspec.json.decode(content, type=_Document)
    docker = found.config is not None and found.config.media_type not in ("", OCI_CONFIG)
    return found.media_type or (DOCKER_MANIFEST if docker else OCI_MANIFEST)


def _layer(found: Descriptor, limit: int) -> Layer:
    if "foreign" in found.media_type or "nondistributable" in found.media_type or found.urls:
        raise BadImage(f"layer {found.digest[:80]} is foreign (not in the registry), which is not served")
    if found.media_type not in _LAYERS:
        raise BadImage(f"layer {found.digest[:80]} is of unknown type {found.media_type[:100]!r}")
    return _blob(found, limit, "layer")


def _blob(found: Descriptor, limit: int, what: str) -> Layer:
    digest = parse_digest(found.digest)
    if not 0 <= found.size <= limit:
        raise BadImage(f"{what} {digest} says it is {found.size} bytes; 0 to {limit} is allowed")
    return Layer(digest=digest, size=found.size, media_type=found.media_type)


def compression_of(layer: Layer) -> Compression:
    return _LAYERS[layer.media_type]


def manifest_digest(found: Descriptor) -> Digest:
    return parse_digest(found.digest)
