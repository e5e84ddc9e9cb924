"""Where a simulated node keeps its catalog: a real SQLite file, and what a killed daemon or a power cut leaves."""

import shutil
from pathlib import Path


class FakeCatalogDisk:
    """Each life that was killed leaves a copy of what was committed, for the next one; its own file is closed in good
    order afterwards, where nobody looks. After a power cut the file cannot prove that it is whole."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._copies = self._boots = 0
        self._here = self._fresh()

    @property
    def file(self) -> Path:
        return self._here / "catalog.db"

    @property
    def boot(self) -> str:
        return f"boot {self._boots}"

    def kill(self) -> None:
        """While the file is still open."""
        fresh = self._fresh()
        shutil.copytree(self._here, fresh, dirs_exist_ok=True)
        self._here = fresh

    def reboot(self) -> None:
        self._boots += 1

    def _fresh(self) -> Path:
        self._copies += 1
        fresh = self._place / str(self._copies)
        fresh.mkdir(parents=True)
        return fresh
