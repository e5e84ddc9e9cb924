"""From a source to the one manifest for this platform, through indexes and indexes of indexes."""

from typing import assert_never

import msgspec

from hawker.ids import Digest
from hawker.image.digest import digest_of
from hawker.image.failure import BadImage
from hawker.image.limits import ImageLimits
from hawker.image.manifest import Index, Manifest, Platform, manifest_digest, read_manifest
from hawker.image.platform import choose
from hawker.image.reference import (
    DEFAULT_TAG,
    HELLO,
    ArchiveReference,
    DigestReference,
    HelloReference,
    LayoutReference,
    Reference,
    RegistryReference,
)
from hawker.image.source import ImageSource

_NESTED = 4


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference means now, as plain values that can be stored. `digest` pins it, for this platform; `registry`
    is empty for what is not from one; `size_bytes` is of all layers, compressed."""

    reference: str
    registry: str
    repository: str
    tag: str
    digest: Digest
    size_bytes: int
    imported: bool = False


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
