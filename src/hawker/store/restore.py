"""Puts a backup in the place of a store that nobody has open. What it replaces is kept beside it, whole.

A crash anywhere leaves either the old store, or the new one, or none and the draft: then a node refuses to start until
the restore is run again. Never two files that do not belong together: a log of the old store beside the new one would
be taken for its own.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.errors import CannotStart
from hawker.store.sqlite import check_copy, draft_of

_LOCK_START, _LOCK_BYTES = 0x40000000, 512  # where SQLite locks a file (its file format, section 1.3.2)
_LOG, _SHARED = "-wal", "-shm"


def restore_store(backup: Path, store: Path, stamp: str) -> Path | None:
    """Verify `backup` and put a copy of it at `store`; where the replaced store is now, if there was one. `stamp` goes
    into its name. Raises `CannotStart`: not a backup, damaged, too new; the store is in use; the disk refuses."""
    try:
        with _nobody_has(store):
            draft = _draft(backup, store)
            replaced = _move_away(store, store.with_name(f"{store.name}.replaced-{stamp}"))
            draft.rename(store)
            _sync_directory(store.parent)
            return replaced
    except OSError as error:
        raise CannotStart(f"cannot restore {store}: {error}") from error


@contextmanager
def _nobody_has(store: Path) -> Iterator[None]:
    """Held until the new file is in place, so that no node begins with the old one meanwhile."""
    if not store.exists():
        yield
        return
    fd = os.open(store, os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(fd, store)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, store: Path) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
    except BlockingIOError as error:
        raise CannotStart(f"{store.parent} is in use: stop the hawker that runs on it first") from error


def _draft(backup: Path, store: Path) -> Path:
    """The copy is what is verified: the file that was given may change meanwhile."""
    draft = draft_of(store)
    draft.unlink(missing_ok=True)
    try:
        with backup.open("rb") as source, os.fdopen(_private(draft), "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())
        check_copy(draft)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, CannotStart):
            raise CannotStart(str(error).replace(str(draft), str(backup))) from error
        raise
    return draft


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _move_away(store: Path, target: Path) -> Path | None:
    """With its log, which belongs to it by its name."""
    found = store.exists()
    for suffix in ("", _LOG):
        with suppress(FileNotFoundError):
            os.rename(f"{store}{suffix}", f"{target}{suffix}")
    Path(f"{store}{_SHARED}").unlink(missing_ok=True)
    return target if found else None


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
