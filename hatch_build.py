"""Builds the guest programs into the package: the wheel carries them, so nobody who installs it needs a compiler.

The compiler is `zig cc` from the `ziglang` wheel, which cross-compiles to static musl programs. Environment:
HAWKER_GUEST_TARGET is x86_64 or aarch64 (default: this machine's), HAWKER_GUEST_CC another compiler for it.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGETS = ("x86_64", "aarch64")
FLAGS = (
    "-std=c11 -D_GNU_SOURCE -Os -static -s -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables"
    " -fno-unwind-tables -Wl,--gc-sections -Wall -Wextra -Werror"
).split()
ONE_FILE_PROGRAMS = ("hello", "keeper", "userns")  # every other source in guest/ is the pilot's
DIRECTORY_PROGRAMS = ("launcher",)  # all of guest/<name>/


class GuestBuildHook(BuildHookInterface[Any]):
    """Runs before wheels and editable installs; does nothing when the programs are those of the sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        target = guest_target()
        build_guest(Path(self.root), target)
        build_data["artifacts"] += [f"src/hawker/_guest/{name}" for name in program_names()]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{target}"

    def clean(self, versions: list[str]) -> None:
        shutil.rmtree(programs_dir(Path(self.root)), ignore_errors=True)


def guest_target() -> str:
    target = os.environ.get("HAWKER_GUEST_TARGET") or platform.machine()
    if target not in TARGETS:
        raise SystemExit(f"the guest programs can be built for {' and '.join(TARGETS)}, not for {target}")
    return target


def programs_dir(root: Path) -> Path:
    return root / "src/hawker/_guest"


def program_names() -> tuple[str, ...]:
    return ("pilot", *ONE_FILE_PROGRAMS, *DIRECTORY_PROGRAMS)


def build_guest(root: Path, target: str) -> None:
    compiler = compiler_for(root, target)
    mark = programs_dir(root) / "built-from"
    current = fingerprint(root, compiler)
    programs = {name: programs_dir(root) / name for name in program_names()}
    if mark.is_file() and mark.read_text() == current and all(path.is_file() for path in programs.values()):
        return
    programs_dir(root).mkdir(parents=True, exist_ok=True)
    for name, path in programs.items():
        compile_program(root, compiler, sources_of(root, name), path)
    mark.write_text(current)


def sources_of(root: Path, name: str) -> list[Path]:
    if name in DIRECTORY_PROGRAMS:
        return sorted((root / "guest" / name).glob("*.c"))
    if name in ONE_FILE_PROGRAMS:
        return [root / "guest" / f"{name}.c"]
    return sorted(path for path in (root / "guest").glob("*.c") if path.stem not in ONE_FILE_PROGRAMS)


def compiler_for(root: Path, target: str) -> list[str]:
    own = os.environ.get("HAWKER_GUEST_CC")
    if own:
        return [*shlex.split(own), *FLAGS]
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{target}-linux-musl", *FLAGS]


def fingerprint(root: Path, compiler: list[str]) -> str:
    """Of all that decides what the programs are; where this Python is does not."""
    digest = hashlib.sha256(shlex.join(compiler[1:]).encode())
    for path in sorted((root / "guest").rglob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compile_program(root: Path, compiler: list[str], sources: list[Path], program: Path) -> None:
    """Into place by a rename: the program that is there may be running, and must stay whole until the new one is."""
    fresh = program.with_name(program.name + ".new")
    cache = str(root / "build/zig")
    environment = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, **os.environ}
    subprocess.run([*compiler, "-o", str(fresh), *map(str, sources)], env=environment, check=True)
    fresh.chmod(0o755)
    fresh.replace(program)
