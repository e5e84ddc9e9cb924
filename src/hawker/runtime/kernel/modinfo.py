"""What a kernel module says about itself: the `.modinfo` section of its file.

That is where depmod has its lists from too, so a package that was only unpacked, in which no depmod ran, will do.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from hawker.runtime.kernel.elf import read_elf
from hawker.runtime.kernel.inflate import unpacked

MAX_BYTES = 64 << 20
SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")

_LARGEST_INFO = 1 << 20
_NAME = re.compile("[A-Za-z0-9_]{1,55}")


@dataclass(frozen=True, slots=True)
class Modinfo:
    """`needs` are the modules whose symbols it uses, `first` what it asks to be loaded before it, by name or alias."""

    release: str
    needs: tuple[str, ...]
    first: tuple[str, ...]
    aliases: tuple[str, ...]


def module_name(file: str) -> str | None:
    """`virtio-rng.ko.xz` is the module virtio_rng; None for what is no module, or has a name that none has."""
    for suffix in SUFFIXES:
        if file.endswith(suffix):
            name = canonical(file.removesuffix(suffix))
            return name if _NAME.fullmatch(name) else None
    return None


def canonical(name: str) -> str:
    return name.replace("-", "_")


def read_module(path: Path) -> bytes:
    """Unpacked. Raises `ValueError` naming the file, `OSError`."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return unpacked(path.read_bytes(), MAX_BYTES)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def read_modinfo(module: bytes) -> Modinfo:
    """Raises `ValueError` for what is no module."""
    section = read_elf(module).section(b".modinfo")
    if section is None or len(section) > _LARGEST_INFO:
        raise ValueError("an ELF file that is no kernel module")
    values: dict[str, list[str]] = {}
    for line in section.split(b"\0"):
        key, _, value = line.decode("utf-8", "replace").partition("=")
        values.setdefault(key, []).append(value)
    return Modinfo(
        release=_first_word(values.get("vermagic", [])),
        needs=tuple(canonical(name) for line in values.get("depends", []) for name in line.split(",") if name),
        first=tuple(name for line in values.get("softdep", []) for name in _before(line)),
        aliases=tuple(values.get("alias", [])),
    )


def _first_word(lines: list[str]) -> str:
    return lines[0].split(" ")[0] if lines else ""


def _before(softdep: str) -> list[str]:
    """Of "pre: a b post: c" the words a and b."""
    found, counts = [], False
    for word in softdep.split():
        if word.endswith(":"):
            counts = word == "pre:"
        elif counts:
            found.append(canonical(word))
    return found
