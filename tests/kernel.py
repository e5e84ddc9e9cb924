"""A guest kernel for tests: the distribution's, imported once per checkout below `build/`, as `hawker kernel import`
does it. `make setup` does so too; where it cannot be had, tests skip with the reason."""

import fcntl
import functools
import os
import shutil
from pathlib import Path

import pytest

from hawker.clock import SystemClock
from hawker.errors import HawkerError
from hawker.guest import pilot_path
from hawker.host.facts import tsc_khz
from hawker.runtime.kernel.guest_kernel import BootFiles, GuestKernel
from hawker.runtime.kernel.kernel_import import import_package, usual_package
from hawker.runtime.kernel.kernel_store import KernelStore

DATA = Path(__file__).parents[1] / "build/kernel"
"""A data directory of which only the kernels are used."""

KERNELS = DATA / "kernels"


def kernels() -> Path:
    """The directory of imported kernels (`Place.kernels`), with one in it. Skips the test when it cannot be had. Tests
    that import, remove or choose take a copy of it, see `own_kernels`."""
    reason = lack_of_kernel()
    if reason:
        pytest.skip(reason)
    return KERNELS


def own_kernels(place: Path) -> Path:
    """A copy for one test, at `place`, made of links: nothing of a kernel is ever written to."""
    shutil.copytree(kernels(), place, copy_function=os.link, ignore=shutil.ignore_patterns(".draft-*", "initramfs"))
    return place


def boot_files(form: str) -> BootFiles:
    """Kernel ("bzImage" or "vmlinux") and initramfs with the pilot of this checkout."""
    return GuestKernel(kernels(), None, pilot_path(), SystemClock()).files(form)


def emulation() -> str:
    """What a kernel has to be told on its command line to boot under emulation on a busy host."""
    return f"tsc_early_khz={tsc_khz(SystemClock())}"


@functools.cache
def lack_of_kernel() -> str:
    """Why there is none; "" when there is."""
    DATA.mkdir(parents=True, exist_ok=True)
    with (DATA / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = KernelStore(KERNELS)
        if not store.list():
            try:
                import_package(store, KERNELS, usual_package(), lambda line: None, SystemClock().now())
            except HawkerError as error:
                return f"no guest kernel can be had: {error}"
    return ""
