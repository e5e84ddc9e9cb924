"""Where an image's content comes from: the contract that registries, layouts, archives and the sample image keep."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hawker.ids import Digest
from hawker.image.config import Layer
from hawker.value_object import ValueObject


class Stored(ValueObject, frozen=True):
    """A manifest or index as its source has it. `media_type` may be empty."""

    content: bytes
    media_type: str = ""


class Piece(ValueObject, frozen=True):
    """Bytes of a blob from `offset` on, which is the one asked for or 0."""

    offset: int
    chunks: AsyncIterator[bytes]


class ImageSource(Protocol):
    """Nothing that comes from here is trusted: callers check digests and sizes. May raise `TryLater`."""

    async def manifest(self, digest: Digest | None) -> Stored:
        """With that digest, or what the reference names."""

    def blob(self, blob: Layer, offset: int) -> AbstractAsyncContextManager[Piece]: ...
