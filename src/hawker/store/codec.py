"""Values to bytes and back: MessagePack through msgspec, one cached decoder per value type."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from hawker.store.contract import Bucket

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


@cache
def _decoder(type_: Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cast(Any, type_))


def decode(bucket: Bucket[T], data: bytes) -> T:
    """The value that `encode` made. Raises `msgspec.ValidationError` when the bytes are of another type."""
    value: T = _decoder(cast(Hashable, bucket.type)).decode(data)
    return value
