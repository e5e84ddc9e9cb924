"""Versions of Hawker to deploy: the wheel of a commit, built and unpacked, and the sources that are tested.

Nothing is downloaded: the compiler and the libraries are those of the environment that runs the tests.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUEST = "src/hawker/_guest"
EARLIER = 20  # commits to go back to, at most, for one that works
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_MAIN = "import sys; from hawker.cli.main import main; sys.exit(main())"
_WITHIN_S = 900  # a compiler without its cache, on a busy host


@dataclass(frozen=True, slots=True)
class Build:
    """`name` is for people; `folder` holds the package `hawker`."""

    name: str
    folder: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-c", _MAIN, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HAWKER_")}
        limits = (self.folder / "hawker/gateway/rate_limits.py").exists()
        own = {"PYTHONPATH": str(self.folder), "HAWKER_ALLOW_LOCAL_IMAGES": "true"}
        return kept | own | ({"HAWKER_RATE_LIMITS": "false"} if limits else {})

    def works(self) -> bool:
        """Whether it can be imported; where from is its own business."""
        command = self.command("up", "--help")
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0


def this_version() -> Build:
    """As it stands here."""
    return Build("this version", ROOT / "src")


def earlier_version(place: Path) -> Build | None:
    """The newest earlier commit that works; none without git or history."""
    for commit in _commits():
        source = place / commit
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
        shutil.copytree(ROOT / GUEST, source / GUEST)  # compiled again only if its own sources are others
        if Build(commit, source / "src").works():
            return _build(f"commit {commit[:7]}", source, place)
    return None


def _commits() -> Iterator[str]:
    command = ["git", "rev-list", "--first-parent", "--skip=1", f"--max-count={EARLIER}", "HEAD"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return
    yield from listed.stdout.split() if listed.returncode == 0 else ()


def _build(name: str, source: Path, place: Path) -> Build:
    """The compiler's cache is the checkout's own, so that only changed programs are compiled."""
    wheels, folder = place / "wheels", place / "package"
    cache = str(ROOT / "build/zig")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    offline = ("--no-deps", "--no-index")
    _run(*_PIP, "wheel", *offline, "--no-build-isolation", "-w", str(wheels), str(source), env=environment)
    (wheel,) = wheels.glob("hawker-*.whl")
    _run(*_PIP, "install", *offline, "--target", str(folder), str(wheel), env=environment)
    return Build(name, folder)


def _run(*command: str, env: dict[str, str]) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
