"""The host's programs that a kernel's import and an initramfs are made with: kmod, cpio, lz4, apt, dpkg.

Every Debian host has them or can install them; nothing here knows their formats.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hawker.errors import CannotStart

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_TIMEOUT_S = 120.0
_LONGEST_COMPLAINT, _LINES = 2000, 3

_FILES_HINT = ", or name files with --image and --modules"
_PACKAGES: Mapping[str, str] = {
    "apt-cache": f"apt{_FILES_HINT}",
    "apt-get": f"apt{_FILES_HINT}",
    "cpio": "cpio",
    "depmod": "kmod",
    "dpkg-deb": f"dpkg{_FILES_HINT}",
    "lz4": "lz4",
    "modinfo": "kmod",
    "modprobe": "kmod",
}


class MissingTool(CannotStart):
    """A program is not installed. The text names the Debian package that has it."""


def find_tool(name: str) -> str:
    """The program's path, from PATH or where Debian keeps those of root. Raises `MissingTool`."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if found is None:
        raise MissingTool(f"{name} is missing: install the Debian package {_PACKAGES[name]}")
    return found


def run_tool(
    command: Sequence[str], *, given: bytes = b"", directory: Path | None = None, timeout_s: float = _TIMEOUT_S
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end, with `given` as its input and in English. Its exit status is the caller's to judge.
    Raises `MissingTool`; `CannotStart` when it does not end in `timeout_s` seconds or cannot be run."""
    path = find_tool(command[0])
    try:
        return subprocess.run(
            [path, *command[1:]],
            check=False,
            capture_output=True,
            input=given,
            timeout=timeout_s,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise CannotStart(f"{command[0]} has not answered in {timeout_s:.0f} s") from error
    except OSError as error:
        raise CannotStart(f"{command[0]} cannot be run: {error.strerror}") from error


def complaint(done: "subprocess.CompletedProcess[bytes]") -> str:
    """The last lines that the program said on its standard error, warnings of apt left out; else its exit status."""
    text = done.stderr[-_LONGEST_COMPLAINT:].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("W:")]
    return "; ".join(lines[-_LINES:]) if lines else f"exit status {done.returncode}"
