"""Getting a kernel's packages with this host's own apt: looked up and downloaded, never installed.

A name such as linux-image-cloud-amd64 only stands for the newest kernel of its kind; what it depends on is followed as
far as it is named like a kernel. Which servers that asks is the business of apt's configuration.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from hawker.errors import CannotStart

_LOOK_UP_S, _DOWNLOAD_S = 60.0, 600.0
_MOST_PACKAGES = 6
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")
_KERNEL_PART = re.compile(r"^\s*(?:Pre)?Depends: (linux-(?:image|modules)-[a-z0-9+.-]+)$", re.MULTILINE)
_CLOUD = {"x86_64": "linux-image-cloud-amd64", "aarch64": "linux-image-cloud-arm64"}


def usual_package() -> str:
    """The distribution's kernel for virtual machines. Raises `CannotStart` for a processor that has none."""
    machine = platform.machine()
    if machine not in _CLOUD:
        raise CannotStart(f"no kernel package is known for {machine}: name one with --package")
    return _CLOUD[machine]


def download(package: str, into: Path, say: Callable[[str], None]) -> list[Path]:
    """The package and the parts of a kernel that it depends on, as files in `into`. `say` is told what takes long.
    Raises `CannotStart` with what to do."""
    if shutil.which("apt-get") is None:
        raise CannotStart("apt-get is missing, so no package can be had here: name files with --image and --modules")
    if not _NAME.fullmatch(package):
        raise CannotStart(f"{package!r} is no name of a package")
    names = _with_parts(package)
    say(f"downloading {', '.join(names)}")
    done = _run(["apt-get", "download", *names], _DOWNLOAD_S, into)
    files = sorted(into.glob("*.deb"))
    if done.returncode != 0 or not files:
        raise CannotStart(f"apt-get cannot download {package}: {_last_line(done)}; try `apt-get update`")
    return files


def _with_parts(package: str) -> list[str]:
    names = [package]
    for name in names:  # grows while it is walked
        done = _run(["apt-cache", "depends", "--important", name], _LOOK_UP_S, None)
        if done.returncode != 0:
            raise CannotStart(f"apt knows no package {name}: try `apt-get update`, or name another with --package")
        names += [part for part in _KERNEL_PART.findall(done.stdout) if part not in names]
        if len(names) > _MOST_PACKAGES:
            raise CannotStart(f"{package} stands for too many kernels: name one of {', '.join(names[1:])}")
    return names


def _run(command: list[str], timeout_s: float, directory: Path | None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotStart(f"{command[0]} has not answered in {timeout_s:.0f} s: is the network there?") from error
    except OSError as error:
        raise CannotStart(f"{command[0]} cannot be run: {error.strerror}") from error


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("W:")]
    return lines[-1] if lines else f"exit status {done.returncode}"
