"""Removing a directory that somebody else could write to: whatever they left in it, be it nested a million deep."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it. No link is followed, and no memory is used for each level: the entries
    of a directory below are moved up beside it first. Nobody may write there any more. No error when it is not
    there."""
    with suppress(FileNotFoundError):
        names = _new_names(directory)
        while below := _remove_files(directory):
            for place in below:
                for name in os.listdir(place):
                    os.rename(place / name, directory / next(names))
                place.rmdir()
        directory.rmdir()


def _remove_files(directory: Path) -> list[Path]:
    """All that are no directories; what is left."""
    below = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(Path(entry.path))
            else:
                os.unlink(entry.path)
    return below


def _new_names(directory: Path) -> Iterator[str]:
    """Short ones that were not in it."""
    taken = frozenset(os.listdir(directory))
    return (name for number in count() if (name := f"{number:x}") not in taken)
