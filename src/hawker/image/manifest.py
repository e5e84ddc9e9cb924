"""Manifests and indexes of OCI (image-spec) and Docker (schema 2): read, checked and refused; and from a source to the
one manifest for this platform, through indexes and indexes of indexes.

Invariant: what is read here has digests of the right form and sizes that the limits allow.
"""

import os
from enum import Enum
from typing import assert_never

import msgspec

from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.reference import (
    DEFAULT_TAG,
    HELLO,
    ArchiveReference,
    DigestReference,
    HelloReference,
    LayoutReference,
    Reference,
    RegistryReference,
    digest_of,
    parse_digest,
)
from hawker.image.source import ImageSource

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
    """The platform that an image runs on, as an index says it: `linux/arm64/v8`."""

    os: str = ""
    """The name of the system, `linux` say; empty where it is not said."""
    architecture: str = ""
    """The architecture by Go's name, `amd64` say; empty where it is not said."""
    variant: str = ""
    """The variant of the architecture, `v8` say; empty for any."""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pointer to content."""

    media_type: str = ""
    """The media type of what the descriptor points to; empty where it is not said."""
    digest: str = ""
    """The digest, `sha256:` and 64 hex digits; what is fetched is held to it."""
    size: int = 0
    """The size in bytes as stored, 0 or more; what is fetched is held to it."""
    urls: tuple[str, ...] | None = None
    """Other places of the content. A layer that has any is refused."""
    platform: Platform | None = None
    annotations: dict[str, str] | None = None
    """The annotations that the image's makers noted: a layout's tag is one of them."""


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] | None = None
    manifests: tuple[Descriptor, ...] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of one image for one platform."""

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
    """The media type of a manifest that was read before: what it says itself, else what its config tells."""
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


_MACHINES = {
    "x86_64": Platform(os="linux", architecture="amd64"),
    "aarch64": Platform(os="linux", architecture="arm64", variant="v8"),
    "armv7l": Platform(os="linux", architecture="arm", variant="v7"),
    "riscv64": Platform(os="linux", architecture="riscv64"),
    "ppc64le": Platform(os="linux", architecture="ppc64le"),
    "s390x": Platform(os="linux", architecture="s390x"),
}
_ATTESTATION = "vnd.docker.reference.type"  # an annotation of entries that are about an image, not one


def host_platform() -> Platform:
    machine = os.uname().machine
    return _MACHINES.get(machine, Platform(os="linux", architecture=machine))


def choose(index: Index, wanted: Platform) -> Descriptor:
    """The entry for `wanted`: of its own variant, or one that says no variant, before other variants. An entry that
    says no platform is taken when it is the only one. Raises `BadImage` listing what there is."""
    entries = [entry for entry in index.manifests if _ATTESTATION not in (entry.annotations or {})]
    fitting = [entry for entry in entries if entry.platform and fits(entry.platform, wanted)]
    if fitting:
        return min(fitting, key=lambda entry: _distance(entry.platform, wanted))
    if len(entries) == 1 and not (entries[0].platform and entries[0].platform.architecture):
        return entries[0]
    offered = ", ".join(sorted({str(entry.platform or "unknown") for entry in entries})[:12]) or "none"
    raise BadImage(f"no image for platform {wanted}; there is: {offered}")


def fits(offered: Platform, wanted: Platform) -> bool:
    return (offered.os, offered.architecture) == (wanted.os, wanted.architecture)


def _distance(offered: Platform | None, wanted: Platform) -> int:
    variant = offered.variant if offered else ""
    if variant == wanted.variant:
        return 0
    return 1 if not variant else 2


def check_platform(os: str, architecture: str, wanted: Platform) -> None:
    """Checks the platform of an image that is alone in its manifest: its config says what it is for, or nothing. Raises
    `BadImage` for another platform."""
    offered = Platform(os=os, architecture=architecture)
    if architecture and not fits(offered, wanted):
        raise BadImage(f"no image for platform {wanted}; there is: {offered}")


_NESTED = 4


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The image that a reference means now, as plain values that can be stored. `digest` pins it, for this platform;
    `registry` is empty for what is not from one; `size_bytes` is of all layers, compressed."""

    reference: str
    """The reference with registry and tag filled in."""
    registry: str
    repository: str
    """The name within the registry; a path for what is not from one."""
    tag: str
    """The tag; empty beside a digest alone."""
    digest: Digest
    size_bytes: int
    imported: bool = False
    """The image was uploaded here under this name, and no registry is asked about it."""


def named(reference: Reference, digest: Digest, size_bytes: int, *, imported: bool = False) -> Resolved:
    """`imported`: uploaded under a registry's kind of name, but not from there."""
    match reference:
        case RegistryReference():
            registry, repository, tag = reference.registry, reference.repository, reference.tag or ""
        case HelloReference():
            registry, repository, tag = "", HELLO, DEFAULT_TAG
        case LayoutReference() | ArchiveReference() | DigestReference():
            registry, repository, tag = "", str(reference), ""
        case _:
            assert_never(reference)
    return Resolved(
        reference=str(reference),
        registry="" if imported else registry,
        repository=repository,
        tag=tag,
        digest=digest,
        size_bytes=size_bytes,
        imported=imported,
    )


async def find_manifest(source: ImageSource, pinned: Digest | None, platform: Platform, limits: ImageLimits) -> bytes:
    """The manifest's bytes. `pinned` is the digest that the reference demands. Raises `BadImage`."""
    digest = pinned
    for _ in range(_NESTED):
        stored = await source.manifest(digest)
        found = digest_of(stored.content)
        if digest is not None and found != digest:
            raise BadImage(f"manifest {digest} does not match its digest: what came has {found}")
        match read_manifest(stored.content, limits, stored.media_type):
            case Manifest():
                return stored.content
            case Index() as index:
                digest = manifest_digest(choose(index, platform))
    raise BadImage(f"indexes nested deeper than {_NESTED}")
