"""Images in the OCI layout (image-spec, image-layout.md), in a directory or a tar archive."""

import msgspec

from hawker.ids import Digest
from hawker.image.bundle import ImageBundle
from hawker.image.digest import hex_of, is_digest
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.local import ByteRange, LocalSource
from hawker.image.manifest import Descriptor, Index, Platform, manifest_digest, read_manifest
from hawker.image.platform import choose

INDEX = "index.json"
_TAG = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"


class LocalImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image found in a bundle. `name` is what it calls itself, or empty."""

    source: LocalSource
    name: str


def open_layout(bundle: ImageBundle, tag: str | None, platform: Platform, limits: ImageLimits) -> LocalImage:
    """Raises `BadImage` when there is no such image, or more than one without a tag that tells them apart."""
    entry = _choose(_index(bundle, limits), tag, platform, bundle.label)

    def find(digest: Digest) -> ByteRange | None:
        return bundle.find(f"blobs/sha256/{hex_of(digest)}") if is_digest(digest) else None

    source = LocalSource(manifest_digest(entry), find, limits.max_manifest_bytes)
    annotations = entry.annotations or {}
    return LocalImage(source=source, name=annotations.get(_FULL_NAME) or annotations.get(_TAG) or "")


def _index(bundle: ImageBundle, limits: ImageLimits) -> Index:
    found = bundle.find(INDEX)
    if found is None:
        raise BadImage(f"{bundle.label} is not an OCI image layout: it has no {INDEX}")
    if found.size > limits.max_manifest_bytes:
        raise BadImage(f"{INDEX} of {bundle.label} is over {limits.max_manifest_bytes} bytes")
    index = read_manifest(found.read(0, found.size), limits)
    if not isinstance(index, Index):
        raise BadImage(f"{INDEX} of {bundle.label} is not an index")
    return index


def _choose(index: Index, tag: str | None, platform: Platform, label: str) -> Descriptor:
    entries = index.manifests
    if tag is not None:
        entries = tuple(entry for entry in entries if (entry.annotations or {}).get(_TAG) == tag)
        if not entries:
            offered = ", ".join(sorted({(entry.annotations or {}).get(_TAG, "untagged") for entry in index.manifests}))
            raise BadImage(f"{label} has no image tagged {tag!r}; there is: {offered[:300] or 'none'}")
    if len(entries) == 1:
        return entries[0]
    if len({(entry.annotations or {}).get(_TAG) for entry in entries}) > 1:
        raise BadImage(f"{label} has several images; name one by its tag")
    return choose(Index(manifests=entries), platform)
