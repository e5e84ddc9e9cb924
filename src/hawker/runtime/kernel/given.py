"""A kernel that the operator named by path in the settings: any vmlinux or bzImage.

What it needs as modules is built into it, or is in the imported kernel of the same release. What is made of the file,
as a vmlinux out of a bzImage, is kept on a shelf of its own for as long as the file is the same.
"""

import os
from pathlib import Path

from hawker.errors import CannotStart, NotFound
from hawker.runtime.kernel.image import MAX_BYTES, KernelImage, read_image
from hawker.runtime.kernel.initramfs import digest_of
from hawker.runtime.kernel.modules import Module, Selection
from hawker.runtime.kernel.shelf import Kernel, Shelf


def given_kernel(path: Path, kept: Shelf, imported: Shelf, now: float) -> Kernel:
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


def _modules(imported: Shelf, release: str) -> tuple[Module, ...]:
    """None, when there is no imported kernel of this release: then all that is needed has to be built in."""
    try:
        return imported.find(release).modules()
    except NotFound:
        return ()


def _digest(imported: Shelf, release: str) -> str:
    try:
        return imported.find(release).record.modules_digest
    except NotFound:
        return digest_of(())
