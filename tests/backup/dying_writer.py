"""A process that backs a file up and kills itself at one object: before anything of it is written, within it, or once
it is there. `python -m tests.backup.dying_writer PLACE SCRATCH FILE BACKUP PARENT OBJECT MOMENT`, objects from 1 on."""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import anyio

from hawker.archive.directory import DirectoryBackend
from hawker.backup.transfer import save
from tests.backup.conftest import ABOUT, opened

MOMENTS = ("before", "within", "after")


class DyingWriter(DirectoryBackend):
    def __init__(self, root: Path, dies_at: int, moment: str) -> None:
        super().__init__(root)
        self._folder = root
        self._dies_at = dies_at
        self._moment = moment
        self._objects = count(1)

    async def put_new(self, key: str, file: Path) -> bool:
        dies = next(self._objects) == self._dies_at
        if dies and self._moment == "before":
            _die()
        if dies and self._moment == "within":
            _write_half(self._folder / key, file)
            _die()
        done = await super().put_new(key, file)
        if dies:
            _die()
        return done


def _write_half(path: Path, file: Path) -> None:
    """As the draft that a writer has of it by then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = file.read_bytes()
    path.with_name(f".{path.name}.half.partial").write_bytes(data[: len(data) // 2])


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(*arguments: str) -> None:
    place, scratch, file, backup, parent, dies_at, moment = arguments
    repository = opened(DyingWriter(Path(place), int(dies_at), moment), Path(scratch))
    await save(repository, Path(file), backup, ABOUT, await repository.manifest(parent))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
