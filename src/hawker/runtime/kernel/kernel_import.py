"""Where a kernel to import comes from: files that were named, this host's own, or packages of its distribution."""

import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hawker.errors import CannotStart
from hawker.runtime.kernel import kernel_image
from hawker.runtime.kernel.guest_kernel import read_given
from hawker.runtime.kernel.kernel_modules import BUILTIN_LISTS, REQUIRED, LacksModules, ModuleTree, module_name
from hawker.runtime.kernel.kernel_store import Kernel, KernelStore, draft
from hawker.runtime.kernel.tools import complaint, find_tool, run_tool
from hawker.value_object import ValueObject

_LOOK_UP_S, _DOWNLOAD_S = 60.0, 600.0
_MOST_PACKAGES = 6
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")
_KERNEL_PART = re.compile(rb"^\s*(?:Pre)?Depends: (linux-(?:image|modules)-[a-z0-9+.-]+)$", re.MULTILINE)
_CLOUD = {"x86_64": "linux-image-cloud-amd64", "aarch64": "linux-image-cloud-arm64"}

_MOST_MEMBERS = 100_000
_MOST_BYTES = 4 << 30
_IMAGE = re.compile(r"boot/vmlinu[xz]-(?P<release>[^/]+)")
_OF_MODULES = re.compile(r"(?:usr/)?lib/modules/(?P<release>[^/]+)/(?P<path>.+)")
_LONGEST_COMPLAINT = 2000


# A kernel's Debian packages: downloaded with this host's own apt, and its image and modules taken out of them. A
# package is not installed and not trusted: its scripts are never run, and only regular files named as those of a
# kernel are written, under names of our own. Links, devices and paths that lead elsewhere are passed over.


def usual_package() -> str:
    """The distribution's kernel for virtual machines. Raises `CannotStart` for a processor that has none."""
    machine = platform.machine()
    if machine not in _CLOUD:
        raise CannotStart(f"no kernel package is known for {machine}: name one with --package")
    return _CLOUD[machine]


def download(package: str, into: Path, say: Callable[[str], None]) -> list[Path]:
    """The package and the parts of a kernel that it depends on, as files in `into`: a name such as
    linux-image-cloud-amd64 only stands for the newest kernel of its kind. `say` is told what takes long. Raises
    `CannotStart` with what to do."""
    if not _NAME.fullmatch(package):
        raise CannotStart(f"{package!r} is no name of a package")
    names = _with_parts(package)
    say(f"downloading {', '.join(names)}")
    done = run_tool(["apt-get", "download", *names], timeout_s=_DOWNLOAD_S, directory=into)
    files = sorted(into.glob("*.deb"))
    if done.returncode != 0 or not files:
        raise CannotStart(f"apt-get cannot download {package}: {complaint(done)}; try `apt-get update`")
    return files


def _with_parts(package: str) -> list[str]:
    names = [package]
    for name in names:  # grows while it is walked
        done = run_tool(["apt-cache", "depends", "--important", name], timeout_s=_LOOK_UP_S)
        if done.returncode != 0:
            raise CannotStart(f"apt knows no package {name}: try `apt-get update`, or name another with --package")
        parts = (part.decode() for part in _KERNEL_PART.findall(done.stdout))
        names += [part for part in parts if part not in names]
        if len(names) > _MOST_PACKAGES:
            raise CannotStart(f"{package} stands for too many kernels: name one of {', '.join(names[1:])}")
    return names


def unpack_kernel(package: Path, into: Path) -> None:
    """Adds `vmlinuz-RELEASE` and `modules/RELEASE/...` to the directory `into`; a package may have one of them, or
    neither. Raises `CannotStart` for what is no package, or is larger than a kernel ever is; `OSError`."""
    command = [find_tool("dpkg-deb"), "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None and unpacking.stderr is not None, "both were asked for"
        try:
            _take(unpacking.stdout, into)
        except (tarfile.TarError, ValueError) as error:
            unpacking.kill()
            said = unpacking.stderr.read(_LONGEST_COMPLAINT).decode("utf-8", "replace").strip()
            raise CannotStart(f"{package.name} cannot be used: {said or error}") from error
        finally:
            unpacking.kill()


def _take(stream: IO[bytes], into: Path) -> None:
    total = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive):
            total += member.size
            if count > _MOST_MEMBERS or total > _MOST_BYTES:
                raise ValueError("it has more in it than a kernel")
            target = _target(member)
            source = archive.extractfile(member) if target is not None else None
            if target is not None and source is not None:
                _write(into / target, source)


def _target(member: tarfile.TarInfo) -> str | None:
    """Where it goes, made of checked names; None for what is not wanted."""
    name = member.name.removeprefix("./")
    if not member.isreg() or ".." in name.split("/"):
        return None
    if found := _IMAGE.fullmatch(name):
        return f"vmlinuz-{found['release']}" if kernel_image.RELEASE.fullmatch(found["release"]) else None
    if not (found := _OF_MODULES.fullmatch(name)) or not kernel_image.RELEASE.fullmatch(found["release"]):
        return None
    wanted = found["path"] in BUILTIN_LISTS or module_name(found["path"].rsplit("/", 1)[-1]) is not None
    return f"modules/{found['release']}/{found['path']}" if wanted else None


def _write(path: Path, source: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as sink:
        shutil.copyfileobj(source, sink)


Say = Callable[[str], None]
"""Told what is being done, before what takes long."""

_BOOT, _MODULES = Path("/boot"), Path("/lib/modules")


class KernelSource(ValueObject, frozen=True):
    """An image, and the directory of its modules: of this kernel alone, or one that has a directory of its release."""

    image: Path
    modules: Path
    origin: str
    """Where the image is from, for people."""


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
            files = download(package, work, say)
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
