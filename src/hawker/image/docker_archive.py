"""Archives as `docker save` writes them.

They have no manifest of the registry's kind, so one is made: always the same for the same archive.
"""

import hashlib
from collections.abc import Callable

import msgspec

from hawker.ids import Digest
from hawker.image.bundle import ImageBundle
from hawker.image.config import read_config
from hawker.image.digest import digest_of
from hawker.image.failure import BadImage
from hawker.image.inflate import sniff
from hawker.image.layout import LocalImage
from hawker.image.limits import ImageLimits
from hawker.image.local import ByteRange, Content, LocalSource
from hawker.image.manifest import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Compression

MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_SUFFIXES = {Compression.NONE: "", Compression.GZIP: "+gzip", Compression.ZSTD: "+zstd"}


class _Listed(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    config: str
    repo_tags: tuple[str, ...] | None = None
    layers: tuple[str, ...] = ()


def open_docker(bundle: ImageBundle, limits: ImageLimits, check: Callable[[], None]) -> LocalImage:
    """Raises `BadImage`. Reads all layers once, for their digests; `check` is called now and then."""
    listed = _listed(bundle, limits)
    config = _span(bundle, listed.config).read(0, limits.max_config_bytes)
    diff_ids = read_config(config).diff_ids
    if len(diff_ids) != len(listed.layers):
        raise BadImage(f"{bundle.label} has {len(listed.layers)} layers, its config lists {len(diff_ids)}")
    layers = [
        _layer(_span(bundle, name), diff_id, check) for name, diff_id in zip(listed.layers, diff_ids, strict=True)
    ]
    manifest = _manifest(config, [pointer for _, pointer in layers])
    contents: dict[Digest, Content] = {Digest(pointer.digest): span for span, pointer in layers}
    contents |= {digest_of(config): config, digest_of(manifest): manifest}
    source = LocalSource(digest_of(manifest), contents.get, limits.max_manifest_bytes)
    return LocalImage(source=source, name=next(iter(listed.repo_tags or ()), ""))


class _Pointer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    media_type: str
    digest: str
    size: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 2
    media_type: str = OCI_MANIFEST
    config: _Pointer
    layers: list[_Pointer]


def _listed(bundle: ImageBundle, limits: ImageLimits) -> _Listed:
    found = _span(bundle, MANIFEST)
    try:
        listed = msgspec.json.decode(found.read(0, limits.max_manifest_bytes), type=list[_Listed])
    except msgspec.DecodeError as error:
        raise BadImage(f"{MANIFEST} of {bundle.label} cannot be read: {error}") from error
    if len(listed) != 1:
        raise BadImage(f"{bundle.label} has {len(listed)} images; one is wanted")
    return listed[0]


def _span(bundle: ImageBundle, name: str) -> ByteRange:
    found = bundle.find(name)
    if found is None:
        raise BadImage(f"{bundle.label} is not an archive of docker save: it has no {name[:200]!r}")
    return found


def _layer(span: ByteRange, diff_id: str, check: Callable[[], None]) -> tuple[ByteRange, _Pointer]:
    """The config's digest is of the unpacked layer; most archives hold just that."""
    compression = sniff(span.read(0, 8))
    digest = _digest(span, check)
    if compression is Compression.NONE and digest != diff_id:
        raise BadImage(f"layer {diff_id[:80]} does not match its digest: what is in the archive has {digest}")
    return span, _Pointer(media_type=OCI_LAYER + _SUFFIXES[compression], digest=digest, size=span.size)


def _digest(span: ByteRange, check: Callable[[], None]) -> str:
    found = hashlib.sha256()
    position = 0
    while data := span.read(position, _CHUNK):
        check()
        found.update(data)
        position += len(data)
    return f"sha256:{found.hexdigest()}"


def _manifest(config: bytes, layers: list[_Pointer]) -> bytes:
    pointer = _Pointer(media_type=OCI_CONFIG, digest=digest_of(config), size=len(config))
    return msgspec.json.encode(_Manifest(config=pointer, layers=layers))
