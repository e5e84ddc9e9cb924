"""Values to bytes and back: MessagePack through msgspec, one cached decoder per value type."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from hawker.errors import Fault
from hawker.store.contract import Bucket

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


@cache
def _decoder(type_: Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cast(Any, type_))


def decode(bucket: Bucket[T], key: str, data: bytes) -> T:
    """The value that `encode` made. Raises `Fault` naming the record when the bytes are not of that type."""
    try:
        value: T = _decoder(cast(Hashable, bucket.type)).decode(data)
    except msgspec.DecodeError as error:
        name = f"{key.replace(chr(0), ' ').strip()!r} in bucket {bucket.name}"
        raise Fault(f"record {name} of the store cannot be read ({error}): restore a backup of the store") from error
    return value
