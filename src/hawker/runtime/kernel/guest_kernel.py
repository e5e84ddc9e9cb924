"""What a machine is booted with: the files of the kernel that the node has chosen, or that its operator named.

Looked up at every start, so that an import counts from the next one on, and nothing is remembered that could be old. A
named kernel may be any vmlinux or bzImage: what it needs as modules is built into it, or is in the imported kernel of
the same release. What is made of its file, as a vmlinux out of a bzImage, is kept while the file is the same.
"""

import os
import shutil
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import CannotStart, NotFound
from hawker.runtime.kernel import kernel_store
from hawker.runtime.kernel.kernel_image import MAX_BYTES, KernelImage, read_image
from hawker.runtime.kernel.kernel_modules import Module, Selection
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore, initramfs_digest
from hawker.value_object import ValueObject

_KERNEL, _INITRAMFS, _GIVEN = "kernel", "initramfs", "given"


def given_kernel(path: Path, kept: KernelStore, imported: KernelStore, now: float) -> Kernel:
    """Raises `CannotStart` when the file is no kernel or cannot be read."""
    try:
        origin = _origin(path)
        for kernel in kept.list():
            if kernel.record.origin == origin and kernel.record.modules_digest == _digest(imported, kernel.release):
                return kernel
        image = read_given(path)
        return kept.put(image, Selection(modules=_modules(imported, image.release), lacks=()), origin, now)
    except (ValueError, OSError) as error:
        raise CannotStart(f"the setting `kernel` names {path}, which cannot be used: {error}") from error


def read_given(path: Path) -> KernelImage:
    """Raises `ValueError`, `OSError`."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return read_image(path.read_bytes())


def _origin(path: Path) -> str:
    found = os.stat(path)
    return f"{path} ({found.st_size} bytes, changed {found.st_mtime_ns})"


def _modules(imported: KernelStore, release: str) -> tuple[Module, ...]:
    """None, when there is no imported kernel of this release: then all that is needed has to be built in."""
    try:
        return imported.find(release).modules()
    except NotFound:
        return ()


def _digest(imported: KernelStore, release: str) -> str:
    try:
        return imported.find(release).record.modules_digest
    except NotFound:
        return initramfs_digest(())


class BootFiles(ValueObject, frozen=True):
    """Paths on the host, readable to all. `release` is the kernel's."""

    kernel: Path
    initramfs: Path
    release: str


class GuestKernel:
    """`directory` is `Place.kernels`; `given` is the setting `kernel`; `pilot` becomes /init."""

    def __init__(self, directory: Path, given: Path | None, pilot: Path, clock: Clock) -> None:
        self._initramfs = directory / _INITRAMFS
        self._store = KernelStore(directory)
        self._kept = KernelStore(directory / _GIVEN)
        self._given = given
        self._pilot = pilot
        self._clock = clock

    def kernel(self) -> Kernel:
        """Reads little. Raises `CannotStart` with what to do."""
        if self._given is not None:
            return given_kernel(self._given, self._kept, self._store, self._clock.now())
        found = self._store.current()
        if found is None:
            raise CannotStart("machines have no kernel yet: run `hawker kernel import`")
        return found

    def files(self, form: str) -> BootFiles:
        """For a VMM that boots a "bzImage" or a "vmlinux". Makes the initramfs when it is not there, and then drops
        those that no kernel here needs. Raises `CannotStart`, `OSError`."""
        kernel, pilot = self.kernel(), self._pilot.read_bytes()
        path = self._initramfs / kernel_store.initramfs_name(pilot, kernel.record.modules_digest)
        if not path.exists():
            kernel_store.build_initramfs(path, pilot, kernel.modules())
            self._prune(pilot, kernel)
        return BootFiles(kernel=kernel.file(form), initramfs=path, release=kernel.release)

    def lend(self, form: str, directory: Path) -> BootFiles:
        """Give what `files` gives, by names in `directory` that are kept whatever becomes of the kernel: a machine that
        is suspended may want them years later. Links, or copies where the directory is on another disk."""
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
        digests = [kernel.record.modules_digest for kernel in (used, *self._store.list())]
        kernel_store.prune_initramfs(
            self._initramfs, [kernel_store.initramfs_name(pilot, digest) for digest in digests]
        )
