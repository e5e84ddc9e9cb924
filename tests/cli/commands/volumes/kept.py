"""A repository of backups as commands find it: a place, a passphrase in a file, and one backup."""

from pathlib import Path

import anyio

from hawker.archive.directory import DirectoryBackend
from hawker.backup.transfer import save
from tests.backup.conftest import ABOUT, PASSPHRASE, files_below, opened

KEPT = "acme/web/vol_a/20260102T030405Z-00ff"


class Kept:
    """A repository with one backup, and no node."""

    def __init__(self, root: Path) -> None:
        self.place, self.passphrase, self.volume = root / "place", root / "passphrase", root / "volume"
        self.passphrase.write_bytes(PASSPHRASE)
        self.volume.write_bytes(b"blocks of the volume " * 10_000)
        repository = opened(DirectoryBackend(self.place), root / "way")
        anyio.run(save, repository, self.volume, KEPT, ABOUT, None)

    def damage(self) -> None:
        files_below(self.place / "packs")[0].write_bytes(b"rot")


def words(kept: Kept, command: str, *more: str) -> tuple[str, ...]:
    return ("volumes", command, str(kept.place), *more, "--passphrase-file", str(kept.passphrase))
