"""Archives in a directory of this host, or one that is mounted."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO, TypeVar

from hawker.archive.failure import ArchiveDamaged, of_os
from hawker.archive.pack import owned
from hawker.fair.threads import Pool, in_thread

T = TypeVar("T")

MARK = "HAWKER-ARCHIVE"
MARK_TEXT = b"Histories of destroyed machines, written by hawker. They hold the machines' configs with their secrets.\n"
_CHUNK = 1 << 20
_DRAFT = ".partial"
_LEFT_S = 86_400.0  # nobody writes a file for so long


class DirectoryBackend:
    """Keeps `backend.ArchiveBackend`. Files and directories that it makes belong to the node's user alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        return str(self._root)

    async def check(self) -> None:
        await self._in_thread(self._mark)

    async def put(self, key: str, file: Path) -> None:
        await self._in_thread(partial(self._put, key, file))

    async def put_new(self, key: str, file: Path) -> bool:
        return await self._in_thread(partial(self._put_new, key, file))

    async def names(self, prefix: str, most: int) -> list[str]:
        return await self._in_thread(partial(self._names, prefix, most))

    async def versions(self, prefix: str, most: int) -> dict[str, str | None]:
        return await self._in_thread(partial(self._versions, prefix, most))

    async def size(self, key: str) -> int | None:
        return await self._in_thread(partial(self._size, key))

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        return await self._in_thread(partial(self._get, key, target, most_bytes))

    async def remove(self, key: str) -> None:
        await self._in_thread(partial(self._remove, key))

    async def remove_drafts(self, before: float) -> int:
        return await self._in_thread(partial(self._remove_drafts, before))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await in_thread(Pool.ARCHIVE, call)
        except OSError as error:
            raise of_os(self.name, error) from error

    def _mark(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(self._root / MARK, lambda draft: draft.write(MARK_TEXT))

    def _put(self, key: str, file: Path) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("rb") as source:
            _replace(path, partial(_copy, source))
        _sync_directory(path.parent.parent)

    def _put_new(self, key: str, file: Path) -> bool:
        """A link does not replace what is there."""
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("rb") as source:
            draft = _drafted(path, partial(_copy, source))
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        for directory in (path.parent, path.parent.parent):
            _sync_directory(directory)
        return True

    def _names(self, prefix: str, most: int) -> list[str]:
        found: list[str] = []
        for folder, _, files in os.walk(self._root / prefix, onerror=_unlisted):
            here = Path(folder).relative_to(self._root)
            found += [str(here / name) for name in files if not name.endswith(_DRAFT)]
            if len(found) > most:
                raise ArchiveDamaged(f"there are more than {most} files below {prefix}")
        return sorted(found)

    def _versions(self, prefix: str, most: int) -> dict[str, str | None]:
        """Whatever is written comes as another file: its inode is another one as long as the old file is there, and its
        time from then on."""
        found = dict[str, str | None]()
        for key in self._names(prefix, most):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                about = (self._root / key).lstat()
                found[key] = f"{about.st_ino:x}.{about.st_mtime_ns:x}.{about.st_size:x}"
        return found

    def _size(self, key: str) -> int | None:
        try:
            found = (self._root / key).stat()
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def _get(self, key: str, target: Path, most_bytes: int) -> bool:
        """Not a device or a pipe that someone has put there."""
        try:
            descriptor = os.open(self._root / key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise ArchiveDamaged("it is no file")
        with os.fdopen(descriptor, "rb") as source, owned(target) as copy:
            if found.st_size > most_bytes:
                raise ArchiveDamaged(f"it has {found.st_size} bytes, {most_bytes} at the most")
            _copy(source, copy)
        return True

    def _remove(self, key: str) -> None:
        path = self._root / key
        if path.exists():
            path.unlink(missing_ok=True)
            _sync_directory(path.parent)

    def _remove_drafts(self, before: float) -> int:
        removed = 0
        for folder, _, files in os.walk(self._root):
            for draft in (Path(folder, name) for name in files if name.endswith(_DRAFT)):
                with suppress(FileNotFoundError):  # its writer was quicker
                    if draft.lstat().st_mtime < before:
                        draft.unlink()
                        removed += 1
        return removed


def _unlisted(error: OSError) -> None:
    """A folder that cannot be listed does not count as empty: what its files name would be taken for left over."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """The new content, on disk, takes the old one's place at once. What writers of the same file that were killed have
    left goes a day later, by the clock of the file system."""
    draft = _drafted(path, write)
    now = draft.stat().st_mtime
    try:
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    with os.scandir(path.parent) as entries:
        left = [Path(each) for each in entries if _is_draft_of(path.name, each.name)]
    for each in left:
        with suppress(FileNotFoundError):  # another was quicker
            if each.lstat().st_mtime < now - _LEFT_S:
                each.unlink()


def _is_draft_of(name: str, draft: str) -> bool:
    """Older versions had one name for all drafts of a file."""
    return draft.endswith(_DRAFT) and (draft.startswith(f".{name}.") or draft == f"{name}{_DRAFT}")


def _drafted(path: Path, write: Callable[[BinaryIO], object]) -> Path:
    """The new content, on disk, under a name beside it that no other writer has."""
    descriptor, draft = mkstemp(prefix=f".{path.name}.", suffix=_DRAFT, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(draft)
        raise
    return Path(draft)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    while chunk := source.read(_CHUNK):
        target.write(chunk)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
