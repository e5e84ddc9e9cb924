"""Content addresses: `sha256:` and 64 hex characters. Pure."""

import hashlib
import re

from hawker.ids import Digest
from hawker.image.failure import BadImage

_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


def is_digest(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def parse_digest(text: str) -> Digest:
    """Raises `BadImage`; other algorithms are not spoken here."""
    if not is_digest(text):
        raise BadImage(f"digest {text[:100]!r} is not sha256: and 64 lowercase hex characters")
    return Digest(text)


def hex_of(digest: Digest) -> str:
    return digest.removeprefix("sha256:")
