"""A root filesystem for tests that need programs and no image: copies of a few of the host's programs and their
libraries. Copies and never a mount: pytest removes its directories, and would reach through a mount into the host."""

import functools
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = (
    "cat echo env false grep head hostname kill ls mknod mount printf seq setsid sh sleep stty tail touch true "
    "unshare yes"
).split()
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"


def host_programs(root: Path) -> Path:
    """Make it at `root`: about 7 MB."""
    for name in ("bin", "etc", "tmp", "root", "proc", "sys", "dev", "usr"):
        (root / name).mkdir(parents=True, exist_ok=True)
    if not (root / "usr/bin").is_symlink():
        (root / "usr/bin").symlink_to("../bin")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    for source, target in _files():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        if not (root / target).exists():  # a program that runs cannot be written
            shutil.copy(source, root / target)
    return root


@functools.cache
def _files() -> tuple[tuple[Path, str], ...]:
    """Where each file is on the host, and its place below the root."""
    programs = {name: shutil.which(name) for name in _PROGRAMS}
    found = {f"bin/{name}": Path(path).resolve() for name, path in programs.items() if path is not None}
    listing = subprocess.run(["ldd", *found.values()], capture_output=True, text=True, check=True).stdout
    libraries = {
        word for line in listing.splitlines() for word in line.split() if word.startswith("/") and word[-1] != ":"
    }
    return tuple((path, target) for target, path in found.items()) + tuple(
        (Path(library).resolve(), library.lstrip("/")) for library in sorted(libraries)
    )
