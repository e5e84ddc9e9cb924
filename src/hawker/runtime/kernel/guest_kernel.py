"""What a machine is booted with: the files of the kernel that the node has chosen, or that its operator named.

Looked up at every start, so that an import counts from the next one on, and nothing is remembered that could be old.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.runtime.kernel import initramfs
from hawker.runtime.kernel.given import given_kernel
from hawker.runtime.kernel.shelf import Kernel, Shelf

_KERNEL, _INITRAMFS, _GIVEN = "kernel", "initramfs", "given"


@dataclass(frozen=True, slots=True)
class BootFiles:
    """Paths on the host, readable to all. `release` is the kernel's."""

    kernel: Path
    initramfs: Path
    release: str


class GuestKernel:
    """`directory` is `Place.kernels`; `given` is the setting `kernel`; `pilot` becomes /init."""

    def __init__(self, directory: Path, given: Path | None, pilot: Path, clock: Clock) -> None:
        self._initramfs = directory / _INITRAMFS
        self._shelf = Shelf(directory)
        self._kept = Shelf(directory / _GIVEN)
        self._given = given
        self._pilot = pilot
        self._clock = clock

    def kernel(self) -> Kernel:
        """Reads little. Raises `CannotStart` with what to do."""
        if self._given is not None:
            return given_kernel(self._given, self._kept, self._shelf, self._clock.now())
        found = self._shelf.current()
        if found is None:
            raise CannotStart("machines have no kernel yet: run `hawker kernel import`")
        return found

    def files(self, form: str) -> BootFiles:
        """For a VMM that boots a "bzImage" or a "vmlinux". Makes the initramfs when it is not there, and then drops
        those that no kernel here needs. Raises `CannotStart`, `OSError`."""
        kernel, pilot = self.kernel(), self._pilot.read_bytes()
        path = self._initramfs / initramfs.name_of(pilot, kernel.record.modules_digest)
        if not path.exists():
            initramfs.build(path, pilot, kernel.modules())
            self._prune(pilot, kernel)
        return BootFiles(kernel=kernel.file(form), initramfs=path, release=kernel.release)

    def lend(self, form: str, directory: Path) -> BootFiles:
        """As `files`, by names in `directory` that are kept whatever becomes of the kernel: a machine that is suspended
        may want them years later. Links, or copies where the directory is on another disk."""
        found = self.files(form)
        kernel, boot = directory / _KERNEL, directory / _INITRAMFS
        for source, place in ((found.kernel, kernel), (found.initramfs, boot)):
            place.unlink(missing_ok=True)
            try:
                place.hardlink_to(source)
            except OSError:
                shutil.copy(source, place)
        return BootFiles(kernel=kernel, initramfs=boot, release=found.release)

    def _prune(self, pilot: bytes, used: Kernel) -> None:
        digests = [kernel.record.modules_digest for kernel in (used, *self._shelf.list())]
        initramfs.prune(self._initramfs, [initramfs.name_of(pilot, digest) for digest in digests])
