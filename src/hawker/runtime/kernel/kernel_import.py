"""Where a kernel to import comes from: files that were named, this host's own, or packages of its distribution."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hawker.errors import CannotStart
from hawker.runtime.kernel import kernel_package
from hawker.runtime.kernel.draft import draft
from hawker.runtime.kernel.guest_kernel import read_given
from hawker.runtime.kernel.kernel_modules import REQUIRED, LacksModules, ModuleTree
from hawker.runtime.kernel.kernel_package import unpack_kernel
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore

Say = Callable[[str], None]
"""Told what is being done, before what takes long."""

_BOOT, _MODULES = Path("/boot"), Path("/lib/modules")


@dataclass(frozen=True, slots=True)
class KernelSource:
    """An image, and the directory of its modules: of this kernel alone, or one that has a directory of its release."""

    image: Path
    modules: Path
    origin: str


def import_kernel(store: KernelStore, source: KernelSource, say: Say, now: float) -> Kernel:
    """Raises `CannotStart` with what is wrong with it."""
    try:
        say(f"reading {source.image}")
        image = read_given(source.image)
        within = source.modules / image.release
        tree = ModuleTree(within if within.is_dir() else source.modules, image.release)
        return store.put(image, tree.select(), source.origin, now)
    except (ValueError, OSError) as error:
        raise CannotStart(f"cannot import {source.image}: {error}") from error


def host_source(boot: Path = _BOOT, modules: Path = _MODULES) -> KernelSource | None:
    """The running kernel, where its files are here and it has the modules that machines need."""
    release = os.uname().release
    image, tree = boot / f"vmlinuz-{release}", modules / release
    try:
        if not image.is_file() or not tree.is_dir():
            return None
        ModuleTree(tree, release).select(REQUIRED, ())
    except (LacksModules, ValueError, OSError):
        return None
    return KernelSource(image=image, modules=tree, origin=f"this host's kernel, {image}")


def import_package(store: KernelStore, directory: Path, package: str, say: Say, now: float) -> Kernel:
    """`directory` is the store's: the package is there while it is looked at. Raises `CannotStart`."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with draft(directory) as work:
            files = kernel_package.download(package, work, say)
            for file in files:
                say(f"unpacking {file.name}")
                unpack_kernel(file, work)
            return import_kernel(store, _unpacked(work, package, files), say, now)
    except OSError as error:
        raise CannotStart(f"cannot import {package}: {error}") from error


def _unpacked(work: Path, package: str, files: list[Path]) -> KernelSource:
    images = sorted(work.glob("vmlinuz-*"))
    if len(images) != 1:
        what = "has no kernel" if not images else f"has {len(images)} kernels"
        raise CannotStart(f"{package} {what} in it: name another package with --package")
    release = images[0].name.removeprefix("vmlinuz-")
    version = next((file.name.removesuffix(".deb") for file in files if f"-{release}_" in file.name), package)
    return KernelSource(image=images[0], modules=work / "modules", origin=f"package {version}")
