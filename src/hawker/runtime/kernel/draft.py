"""Work that is in its place as a whole or not at all: made in a draft directory beside it, synced, renamed.

A draft is locked while somebody works in it. What a killed process left is so known, and swept by whoever comes next.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = ".draft-"


@contextmanager
def draft(directory: Path) -> Iterator[Path]:
    """A fresh directory in `directory`, removed at the end with what is left in it. Raises `OSError`."""
    sweep(directory)
    path, fd = _locked(directory)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def sweep(directory: Path) -> None:
    """Remove the drafts in which nobody works any more."""
    for name in os.listdir(directory):
        if name.startswith(_PREFIX):
            _remove_abandoned(directory / name)


def is_draft(name: str) -> bool:
    return name.startswith(_PREFIX)


def put_file(made: Path, place: Path) -> None:
    """Durably; what is in its place is replaced."""
    _sync(made)
    os.rename(made, place)
    _sync(place.parent)


def put_directory(made: Path, place: Path) -> None:
    """Durably, with all files in it. Raises `OSError` when a directory that is not empty is there."""
    for parent, _, files in os.walk(made):
        for file in files:
            _sync(Path(parent, file))
        _sync(Path(parent))
    os.rename(made, place)
    _sync(place.parent)


def _locked(directory: Path) -> tuple[Path, int]:
    """Between its making and its locking a sweep may take a draft for an abandoned one: then there is another."""
    while True:
        path = Path(tempfile.mkdtemp(dir=directory, prefix=_PREFIX))
        try:
            fd = _open(path)
        except FileNotFoundError:
            continue
        if _lock(fd) and path.exists():
            return path, fd
        os.close(fd)


def _remove_abandoned(path: Path) -> None:
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if _lock(fd):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
