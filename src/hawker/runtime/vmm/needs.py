"""What of this host a monitor's program needs to see: itself, its libraries, and firmware that it reads.

As little as is robust: the files that its own loader names, each by itself, and whole directories only where a program
looks for files by name. A program that is statically linked needs itself alone.
"""

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hawker.errors import CannotStart
from hawker.runtime.vmm.contract import Grant

_TIMEOUT_S = 10.0
_CACHE = Path("/etc/ld.so.cache")
_DIRECTORIES = {
    "qemu-system-": (
        "/usr/share/qemu",
        "/usr/share/seabios",
        "/usr/lib/{triple}/qemu",
        "/usr/lib/qemu",
        "/usr/lib64/qemu",
    ),
}
"""By the beginning of a program's name: firmware, and parts that it loads while it runs."""


@dataclass(frozen=True, slots=True)
class _Found:
    grants: tuple[Grant, ...]
    stamps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """Remembers what it found, for as long as the files are the same."""

    _known: dict[str, _Found] = field(default_factory=dict)

    def of(self, program: Path) -> tuple[Grant, ...]:
        """Raises `CannotStart` when the loader cannot tell."""
        found = self._known.get(str(program))
        if found is None or found.stamps != _stamps(found.grants):
            grants = tuple(Grant(path, str(path)) for path in _files(program))
            found = self._known[str(program)] = _Found(grants, _stamps(grants))
        return found.grants


def _files(program: Path) -> list[Path]:
    libraries = _libraries(program)
    return [program, *([*libraries, _CACHE] if libraries else []), *_directories(program)]


def _libraries(program: Path) -> list[Path]:
    """By the loader's own list; none of a program that is linked statically."""
    ldd = shutil.which("ldd")
    if ldd is None:
        raise CannotStart("ldd is missing: apt-get install libc-bin")
    asked = subprocess.run([ldd, str(program)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    told = asked.stdout + asked.stderr
    if "not found" in told:
        raise CannotStart(f"{program} lacks a library on this host: {told.strip()}")
    return [Path(word) for line in told.splitlines() for word in line.split() if _is_library(word)]


def _is_library(word: str) -> bool:
    return word.startswith("/") and not word.endswith(":")


def _directories(program: Path) -> list[Path]:
    triple = f"{platform.machine()}-linux-gnu"
    named = [names for start, names in _DIRECTORIES.items() if program.name.startswith(start)]
    places = [Path(name.format(triple=triple)) for names in named for name in names]
    return [place for place in places if place.is_dir()]


def _stamps(grants: tuple[Grant, ...]) -> tuple[tuple[int, int], ...]:
    """Of a file that went away, none: then it is asked for again."""
    found = []
    for grant in grants:
        with suppress(FileNotFoundError):
            stat = os.stat(grant.source)
            found.append((stat.st_ino, stat.st_mtime_ns))
    return tuple(found)
