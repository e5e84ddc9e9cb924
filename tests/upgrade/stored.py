"""Every value that outlives a daemon: of each bucket, run and file. Found in the program, so that none is forgotten."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

import hawker
from hawker.image.config import Image
from hawker.image.shelf import Name
from hawker.runtime.driver import Exit, InstanceSpec
from hawker.store.contract import Bucket
from hawker.worker.lifecycle import FLOWS


@dataclass(frozen=True, slots=True)
class Stored:
    """`name` is also the beginning of its golden files' names. A store's values are MessagePack, files are JSON."""

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
    Stored("file-image-name", Name, is_file=True),
    Stored("file-instance", InstanceSpec, is_file=True),
    Stored("file-exit", Exit, is_file=True),
)


def buckets() -> dict[str, Bucket[Any]]:
    """By name, of all modules of the program."""
    found: dict[str, Bucket[Any]] = {}
    for module in pkgutil.walk_packages(hawker.__path__, "hawker."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Bucket) and not name.startswith("_"):
                found[value.name] = value
    return found


def everything() -> Iterator[Stored]:
    for name, bucket in sorted(buckets().items()):
        yield Stored(f"bucket-{name}", bucket.type)
    for flow in FLOWS:
        yield Stored(f"input-{flow.name}", flow.input)
    yield from FILES
