"""Archives in the form that the kernel unpacks as its initramfs: cpio "newc" (the kernel's buffer-format.rst).

Deterministic: the same files give the same bytes. Regular files and the directories above them, all of root's, nothing
else; the kernel makes no parents by itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_BYTES = 256 << 20

_MAGIC = b"070701"
_ALIGN = 4
_MAX_PATH = 255
_DIRECTORY, _REGULAR = 0o040755, 0o100000
_END = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file. `path` is relative and plain: "modules/erofs.ko"."""

    path: str
    content: bytes
    mode: int = 0o644


def archive(entries: Iterable[Entry]) -> bytes:
    """Raises `ValueError` for a path that is not plain or there twice, and above `MAX_BYTES`."""
    parts: list[bytes] = []
    made: set[str] = set()
    size = 0
    for number, (path, mode, content) in enumerate(_with_parents(entries), 1):
        if path in made:
            raise ValueError(f"{path!r} is there twice")
        made.add(path)
        parts.append(_record(number, path, mode, content))
        size += len(parts[-1])
        if size > MAX_BYTES:
            raise ValueError(f"an initramfs of more than {MAX_BYTES >> 20} MiB")
    return b"".join([*parts, _record(0, _END, 0, b"")])


def _with_parents(entries: Iterable[Entry]) -> Iterator[tuple[str, int, bytes]]:
    directories: set[str] = set()
    for entry in entries:
        names = _names(entry.path)
        for depth in range(1, len(names)):
            directory = "/".join(names[:depth])
            if directory not in directories:
                directories.add(directory)
                yield directory, _DIRECTORY, b""
        yield entry.path, _REGULAR | entry.mode & 0o777, entry.content


def _names(path: str) -> list[str]:
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names) or "\0" in path or len(path.encode()) > _MAX_PATH:
        raise ValueError(f"not a plain relative path: {path!r}")
    return names


def _record(number: int, path: str, mode: int, content: bytes) -> bytes:
    """Owner, time and devices are 0; one link."""
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = _MAGIC + b"".join(b"%08x" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGN)
