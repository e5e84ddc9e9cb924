"""Every value that outlives a daemon: of each bucket, run and file. Found in the program, so that none is forgotten.
The frame that the lines and cursors of a log are in is held by `tests/logs/test_app_log.py`."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

import hawker
from hawker.image.config import Image
from hawker.image.image_index import ImageName
from hawker.logs.line import Cursor, KeptLine
from hawker.runtime.driver import Exit
from hawker.runtime.spec import InstanceSpec
from hawker.store.contract import Bucket
from hawker.up.wiring import NODE_FLOWS


@dataclass(frozen=True, slots=True)
class Stored:
    """`name` is also the beginning of its golden files' names. Values of the store and of logs are
    MessagePack, files are JSON."""

    name: str
    type: Any
    is_file: bool = False

    @property
    def encode(self) -> Callable[[Any], bytes]:
        return msgspec.json.encode if self.is_file else msgspec.msgpack.encode

    def decode(self, data: bytes) -> Any:
        return (msgspec.json if self.is_file else msgspec.msgpack).decode(data, type=self.type)

    def as_plain(self, value: Any) -> Any:
        """What `plain` gives of the value's bytes, with what has its default."""
        return msgspec.to_builtins(value, builtin_types=() if self.is_file else (bytes,))

    def plain(self, data: bytes) -> Any:
        """As dicts and lists: what was written, whatever the type is today."""
        return (msgspec.json if self.is_file else msgspec.msgpack).decode(data)


FILES = (
    Stored("file-image", Image, is_file=True),
    Stored("file-image-name", ImageName, is_file=True),
    Stored("file-instance", InstanceSpec, is_file=True),
    Stored("file-exit", Exit, is_file=True),
)


LOGS = (Stored("log-lines", list[KeptLine]), Stored("log-cursors", dict[str, Cursor]))


def buckets() -> dict[str, Bucket[Any]]:
    """By name, of all modules of the program. Some read a bucket as less than it holds: the whole value counts."""
    found: dict[str, Bucket[Any]] = {}
    for module in pkgutil.walk_packages(hawker.__path__, "hawker."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Bucket) and _width(value) >= _width(found.get(value.name)):
                found[value.name] = value
    return found


def _width(bucket: Bucket[Any] | None) -> int:
    """How many fields its values have; something else than a struct has one, and no bucket none."""
    if bucket is None:
        return 0
    is_struct = isinstance(bucket.type, type) and issubclass(bucket.type, msgspec.Struct)
    return len(bucket.type.__struct_fields__) if is_struct else 1


def everything() -> Iterator[Stored]:
    for name, bucket in sorted(buckets().items()):
        yield Stored(f"bucket-{name}", bucket.type)
    for flow in NODE_FLOWS:
        yield Stored(f"input-{flow.name}", flow.input)
    yield from FILES
    yield from LOGS
