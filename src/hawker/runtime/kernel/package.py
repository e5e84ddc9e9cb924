"""What a Debian package holds of a kernel: its image and its modules, taken out, and nothing else of it.

The package is not installed and not trusted: its scripts are never run, and only regular files named as those of a
kernel are written, under names of our own. Links, devices and paths that lead elsewhere are passed over.
"""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO

from hawker.errors import CannotStart
from hawker.runtime.kernel import image
from hawker.runtime.kernel.modinfo import module_name

_MOST_MEMBERS = 100_000
_MOST_BYTES = 4 << 30
_IMAGE = re.compile(r"boot/vmlinu[xz]-(?P<release>[^/]+)")
_OF_MODULES = re.compile(r"(?:usr/)?lib/modules/(?P<release>[^/]+)/(?P<path>.+)")
_LISTS = ("modules.builtin", "modules.builtin.modinfo")
_TOOL = "dpkg-deb"
_LONGEST_COMPLAINT = 2000


def unpack_kernel(package: Path, into: Path) -> None:
    """Adds `vmlinuz-RELEASE` and `modules/RELEASE/...` to the directory `into`; a package may have one of them, or
    neither. Raises `CannotStart` for what is no package, or is larger than a kernel ever is; `OSError`."""
    if shutil.which(_TOOL) is None:
        raise CannotStart(f"{_TOOL} is missing, so packages cannot be read here: name files with --image and --modules")
    with subprocess.Popen(
        [_TOOL, "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as unpacking:
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
        return f"vmlinuz-{found['release']}" if image.RELEASE.fullmatch(found["release"]) else None
    if not (found := _OF_MODULES.fullmatch(name)) or not image.RELEASE.fullmatch(found["release"]):
        return None
    wanted = found["path"] in _LISTS or module_name(found["path"].rsplit("/", 1)[-1]) is not None
    return f"modules/{found['release']}/{found['path']}" if wanted else None


def _write(path: Path, source: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as sink:
        shutil.copyfileobj(source, sink)
