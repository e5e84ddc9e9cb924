"""A directory with a file system of its own, as an operator has who gives volumes another disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawker.host.mount import mount, unmount


@contextmanager
def own_disk(below: Path, mib: int | None = None) -> Iterator[Path]:
    """`mib` is its size; None: half of the host's memory."""
    directory = below / "own"
    directory.mkdir()
    mount("tmpfs", directory, "tmpfs", 0, f"size={mib}m" if mib else "")
    try:
        yield directory
    finally:
        unmount(directory)
