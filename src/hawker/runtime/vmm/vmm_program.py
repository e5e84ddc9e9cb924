"""The program of a VMM on this host: where it is, and whether it is a version that can be spoken to."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from hawker.errors import CannotStart

_TELLS_WITHIN_S = 10.0
_VERSION = re.compile(r"(?<![\d.])v?(\d{1,4})\.(\d{1,4})")


@dataclass(frozen=True, slots=True)
class VmmProgram:
    """`command` is its name on the PATH, or a path. `least` and `known` are versions: the oldest that has all that is
    asked of it, and the one whose documents its driver was written by."""

    command: str
    title: str
    source: str  # where people get it
    least: tuple[int, int]
    known: tuple[int, int]

    def find(self) -> str:
        found = shutil.which(self.command)
        if found is None:
            raise CannotStart(
                f"{self.command} is missing: install {self.title} {_dotted(self.known)}, see {self.source}"
            )
        return found

    async def version(self) -> str:
        """Its own words, such as "Firecracker v1.16.1". Raises `CannotStart`."""
        try:
            with anyio.fail_after(_TELLS_WITHIN_S):
                done = await anyio.run_process((self.find(), "--version"), stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError, TimeoutError) as error:
            raise CannotStart(f"{self.command} does not tell its version: {error}") from error
        return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()

    async def check(self, lack_of_kvm: Callable[[], str]) -> None:
        """Raises `CannotStart`. A later version is taken: what it does not do, it says at the first boot."""
        said = await self.version()
        found = _VERSION.search(said)
        if found is None:
            raise CannotStart(f"{self.command} is no {self.title}: it says {said[:80]!r} of its version")
        version = int(found[1]), int(found[2])
        if version < self.least:
            least = f"{_dotted(self.known)}, or {_dotted(self.least)} at least"
            raise CannotStart(f"{self.title} {_dotted(version)} is too old: install {least}")
        if lack := lack_of_kvm():
            raise CannotStart(f"{self.title} needs KVM: {lack}; choose --driver qemu, which can do without")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
