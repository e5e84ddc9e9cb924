"""Image references: what a user may write for an image, and its one canonical form; and digests, the addresses of
content: `sha256:` and 64 hex characters. Pure.

The grammar of registry references, and the defaults (docker.io, library/, latest), are those of the distribution
project. `parse(str(reference)) == reference` for every reference.
"""

import hashlib
import re
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from hawker.ids import Digest
from hawker.image.failure import BadImage
from hawker.value_object import ValueObject

_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


def is_digest(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def parse_digest(text: str) -> Digest:
    """`text`, which is a digest. Raises `BadImage`; other algorithms than sha256 are not spoken here."""
    if not is_digest(text):
        raise BadImage(f"digest {text[:100]!r} is not sha256: and 64 lowercase hex characters")
    return Digest(text)


def hex_of(digest: Digest) -> str:
    return digest.removeprefix("sha256:")


HELLO = "hawker/hello"
DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"
_NAME_LIMIT = 255
_PATH_LIMIT = 4096

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)


class RegistryReference(ValueObject, frozen=True):
    """An image in a registry. `tag` is None only beside a digest; a digest pins the content whatever the tag says."""

    registry: str
    """A host, with a port after a colon where it has one."""
    repository: str
    """The name within the registry, in lower case."""
    tag: str | None
    digest: Digest | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


class LayoutReference(ValueObject, frozen=True):
    """An OCI image layout in a directory of the node."""

    path: str
    """The directory, on the node."""
    tag: str | None = None
    """The tag of an image of the layout; None where the layout has one image alone."""

    def __str__(self) -> str:
        return f"oci:{self.path}" + (f":{self.tag}" if self.tag else "")


class ArchiveKind(Enum):
    OCI = "oci-archive"
    DOCKER = "docker-archive"


class ArchiveReference(ValueObject, frozen=True):
    """A tar file on the node."""

    kind: ArchiveKind
    path: str
    """The file, on the node."""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.path}"


class HelloReference(ValueObject, frozen=True):
    """The sample image that ships with the package. A digest demands one version of it."""

    digest: Digest | None = None

    def __str__(self) -> str:
        return f"{HELLO}:{DEFAULT_TAG}" + (f"@{self.digest}" if self.digest else "")


class DigestReference(ValueObject, frozen=True):
    """An image that is on the node already."""

    digest: Digest

    def __str__(self) -> str:
        return self.digest


Reference: TypeAlias = RegistryReference | LayoutReference | ArchiveReference | HelloReference | DigestReference


@lru_cache(maxsize=256)
def parse(text: str) -> Reference:
    """The reference that `text` is. Raises `BadImage` with a text that says what is wrong."""
    if not text or len(text) > _PATH_LIMIT or not text.isprintable():
        raise BadImage("image reference is empty, too long or has unprintable characters")
    scheme, _, rest = text.partition(":")
    match scheme:
        case "oci":
            return _parse_layout(text, rest)
        case "oci-archive" | "docker-archive":
            return ArchiveReference(ArchiveKind(scheme), _checked_path(text, rest))
        case "sha256":
            return DigestReference(parse_digest(text))
    name, at, pinned = text.partition("@")
    if name in (HELLO, f"{HELLO}:{DEFAULT_TAG}") or (at and name == f"/{HELLO}:{DEFAULT_TAG}"):
        return HelloReference(_pinned(text, pinned) if at else None)
    return _without_registry(text) or _parse_registry(text)


def pinned_by(reference: Reference) -> Digest | None:
    """The digest that the reference demands, whatever its name means now."""
    match reference:
        case RegistryReference() | HelloReference() | DigestReference():
            return reference.digest
    return None


def _without_registry(text: str) -> DigestReference | None:
    """flyctl clones a machine by its `image_ref`, written REGISTRY/REPOSITORY:TAG@DIGEST. The registry of an image that
    came from none is empty, and its digest is all that leads to it."""
    digest = text.rpartition("@")[2]
    return DigestReference(Digest(digest)) if text.startswith("/") and is_digest(digest) else None


def _parse_layout(text: str, rest: str) -> LayoutReference:
    """`DIR[:TAG]`: the tag is what follows the last colon, if there is no slash in it."""
    path, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        return LayoutReference(_checked_path(text, rest))
    if not _TAG.fullmatch(tag):
        raise _invalid(text, f"{tag!r} is not a tag")
    return LayoutReference(_checked_path(text, path), tag)


def _checked_path(text: str, path: str) -> str:
    if not path.startswith("/"):
        raise _invalid(text, "the path of a local image must be absolute")
    return path


def _parse_registry(text: str) -> RegistryReference:
    name, at, pinned = text.partition("@")
    digest = _pinned(text, pinned) if at else None
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, f"{tag!r} is not a tag")
    registry, repository = _split_host(f"{head}{slash}{last}")
    _check_name(text, registry, repository)
    return RegistryReference(registry, repository, tag or (None if digest else DEFAULT_TAG), digest)


def _pinned(text: str, digest: str) -> Digest:
    if not is_digest(digest):
        raise _invalid(text, "what follows @ must be sha256: and 64 lowercase hex characters")
    return Digest(digest)


def _split_host(name: str) -> tuple[str, str]:
    """The first part is a host if it could not be part of a repository's name: a dot, a colon, `localhost`."""
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    registry, repository = (first, rest) if slash and is_host else (DEFAULT_REGISTRY, name)
    if registry in (DEFAULT_REGISTRY, "index.docker.io", "registry-1.docker.io"):
        return DEFAULT_REGISTRY, repository if "/" in repository else f"library/{repository}"
    return registry, repository


def _check_name(text: str, registry: str, repository: str) -> None:
    if not _HOST.fullmatch(registry):
        raise _invalid(text, f"{registry!r} is not a host name")
    if not _REPOSITORY.fullmatch(repository):
        shown = repository.removeprefix("library/")
        raise _invalid(text, f"{shown!r} is not a repository name: lowercase letters, digits, and . _ - / between them")
    if len(registry) + 1 + len(repository) > _NAME_LIMIT:
        raise _invalid(text, f"the name is longer than {_NAME_LIMIT} characters")


def _invalid(text: str, reason: str) -> BadImage:
    return BadImage(f"invalid image reference {text[:200]!r}: {reason}")
