"""Golden files: each stored type as one version of Hawker wrote it, bytes and shape, which every later one must read.

`python -m tests.upgrade.golden` writes what is missing: a file for each type whose shape is none of its files' yet. No
file is ever changed or removed. docs/upgrade.md says what to decide before one is written.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from hawker.worker.format import THIS
from tests.upgrade import specimen
from tests.upgrade.stored import Stored, everything

FOLDER = Path(__file__).with_name("golden")


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """`full` and `least` are text for files and hexadecimal for the store's values."""

    hawker: str
    format: int
    full: str
    least: str
    shape: Any


@dataclass(frozen=True, slots=True)
class File:
    """One golden file: the `number`th shape of what is stored under `name`."""

    name: str
    number: int

    @classmethod
    def of(cls, path: Path) -> Self:
        name, _, number = path.stem.rpartition(".")
        return cls(name, int(number))

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.{self.number}.json"

    def read(self) -> Golden:
        return msgspec.json.decode(self.path.read_bytes(), type=Golden)


def files() -> Iterator[File]:
    return (File.of(path) for path in sorted(FOLDER.glob("*.json")))


def newest() -> dict[str, File]:
    """By name, the last shape that was decided on."""
    return {file.name: file for file in sorted(files(), key=lambda file: file.number)}


def golden(stored: Stored) -> Golden:
    """As this version writes it."""
    written = [stored.encode(made_of(stored, kind)) for kind in (specimen.full, specimen.least)]
    full, least = (data.decode() if stored.is_file else data.hex() for data in written)
    return Golden(hawker=THIS.hawker, format=THIS.format, full=full, least=least, shape=specimen.shape(stored.type))


def made_of(stored: Stored, kind: Any) -> Any:
    plain = kind(stored.type)
    return stored.decode(msgspec.json.encode(plain) if stored.is_file else msgspec.msgpack.encode(plain))


def bytes_of(text: str, stored: Stored) -> bytes:
    return text.encode() if stored.is_file else bytes.fromhex(text)


def changed() -> Iterator[tuple[Stored, int]]:
    """What no golden file has the shape of yet, and the number that its file would have."""
    known = newest()
    for stored in everything():
        last = known.get(stored.name)
        if last is None or specimen.anonymous(last.read().shape) != specimen.anonymous(specimen.shape(stored.type)):
            yield stored, 1 if last is None else last.number + 1


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stored, number in list(changed()):
        file = File(stored.name, number)
        text = msgspec.json.format(msgspec.json.encode(golden(stored)), indent=1)
        file.path.write_bytes(text + b"\n")
        sys.stdout.write(f"{file.path.name}\n")


if __name__ == "__main__":
    main()
