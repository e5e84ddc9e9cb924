"""How long backups of a volume take, and what they send: a sparse file of 10 GB with 1 GiB that cannot be compressed,
into a directory. Beside it restic, where it is installed, over the same bytes in the same run. With xfs or btrfs, all
of it is on such a file system in a file of DIRECTORY, which is mounted for the run: there files share blocks, and
backups are made of such copies, as a node makes them.

    python bench/backup.py [DIRECTORY [SIZE_GB STORED_GB [xfs|btrfs]]]
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from hawker.archive.directory import DirectoryBackend
from hawker.backup.format import FORMAT, BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save, verify
from hawker.clock import SystemClock
from hawker.host.sparse import shares_blocks
from tests.fixtures.sharing_disk import sharing_disk

GB, MIB = 1 << 30, 1 << 20
_ABOUT = BackupManifest(
    format=FORMAT,
    volume="vol_a",
    name="data",
    app="web",
    org="acme",
    size_bytes=0,
    fstype="ext4",
    encrypted=False,
    volume_key=None,
    guest_written=False,
    created_at=0.0,
    segments=b"",
    stored_bytes=0,
    sent_bytes=0,
)


def write(file: Path, size_gb: int, stored_gb: int) -> None:
    with file.open("wb") as stream:
        stream.truncate(size_gb * GB)
        for _ in range(stored_gb * GB // MIB):
            stream.write(os.urandom(MIB))
        os.fsync(stream.fileno())


def change_scattered(file: Path, stored_gb: int) -> None:
    """1% of what is stored, in pieces of 4 KiB that lie apart by the same distance."""
    with file.open("r+b") as stream:
        for at in range(0, stored_gb * GB, 100 * 4096):
            stream.seek(at)
            stream.write(os.urandom(4096))
        os.fsync(stream.fileno())


def change_together(file: Path, stored_gb: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(stored_gb * GB // 2)
        stream.write(os.urandom(10 * MIB))
        os.fsync(stream.fileno())


def stored(place: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file())


def timed(who: str, what: str, place: Path, call: Callable[[], object]) -> None:
    before, began = stored(place) if place.exists() else 0, time.monotonic()
    call()
    took = time.monotonic() - began
    print(f"{who:8} {what:34} {took:6.1f} s  +{(stored(place) - before) / MIB:7.0f} MiB", flush=True)


class Own:
    """One directory as the place, as a node has it."""

    def __init__(self, below: Path) -> None:
        self.place = below / "own"
        self._repository = BackupRepository(
            DirectoryBackend(self.place), below / "way", lambda: b"correct horse battery", SystemClock()
        )
        self._last: BackupManifest | None = None
        self._count = 0

    def back_up(self, file: Path) -> None:
        """Of a copy that shares the file's blocks, where there can be one; the last one is there to compare with."""
        self._count += 1
        base = file.with_name("base")
        copy = file.with_name("copy") if shares_blocks(file.parent) else file
        if copy != file:
            subprocess.run(["cp", "--reflink=always", str(file), str(copy)], check=True)
        of = partial(save, base=base if base.exists() else None)
        self._last = anyio.run(of, self._repository, copy, f"acme/web/vol_a/{self._count}", _ABOUT, self._last)
        if copy != file:
            copy.rename(base)

    def restore(self, target: Path) -> None:
        anyio.run(restore, self._repository, self._last, target)

    def verify(self) -> None:
        anyio.run(verify, self._repository, self._last, set())


class Restic:
    def __init__(self, below: Path, program: str) -> None:
        self.place = below / "restic"
        self._program = program
        self._environ = {**os.environ, "RESTIC_PASSWORD": "correct horse battery", "RESTIC_REPOSITORY": str(self.place)}
        self._environ["RESTIC_CACHE_DIR"] = str(below / "cache")
        self._run("init")

    def back_up(self, file: Path) -> None:
        self._run("backup", str(file))

    def restore(self, target: Path) -> None:
        self._run("restore", "latest", "--target", str(target))

    def verify(self) -> None:
        self._run("check", "--read-data")

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._program, "-q", *arguments], check=True, env=self._environ)


def main(below: Path, size_gb: int, stored_gb: int) -> None:
    file = below / "volume"
    write(file, size_gb, stored_gb)
    program = shutil.which("restic")
    sides: list[Own | Restic] = [Own(below), *([Restic(below, program)] if program else [])]
    for what, change in (
        (f"first, {size_gb} GB with {stored_gb} GiB stored", None),
        ("nothing changed", None),
        ("1% changed, scattered", change_scattered),
        ("10 MiB changed in one place", change_together),
    ):
        if change is not None:
            change(file, stored_gb)
        for side in sides:
            timed(type(side).__name__.lower(), what, side.place, lambda side=side: side.back_up(file))  # type: ignore[misc]
    for side in sides:
        name, target = type(side).__name__.lower(), below / "again"
        timed(name, "verify", side.place, side.verify)
        timed(name, "restore", side.place, lambda side=side, target=target: side.restore(target))  # type: ignore[misc]
        found = target if target.is_file() else target / str(file).lstrip("/")
        subprocess.run(["cmp", str(file), str(found)], check=True)
        print(f"{name:8} restored: identical, {found.stat().st_blocks * 512 / MIB:.0f} MiB on the disk", flush=True)
        shutil.rmtree(target) if target.is_dir() else target.unlink()


if __name__ == "__main__":
    sizes = [int(text) for text in sys.argv[2:4]] or [10, 1]
    with ExitStack() as opened:
        below = Path(opened.enter_context(TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None)))
        if len(sys.argv) > 4:
            below = opened.enter_context(sharing_disk(below, sys.argv[4], size_mib=4 * sizes[0] * 1024))
        main(below, *sizes)
