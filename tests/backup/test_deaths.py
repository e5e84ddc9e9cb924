"""A process that is killed at any object of a backup leaves no half of one, harms no earlier one, and what it began is
finished by the next process."""

import shutil
import signal
import sys
from pathlib import Path

import anyio
import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.backup.format import SEGMENT_BYTES
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save, verify
from tests.backup.conftest import ABOUT, bytes_of, opened
from tests.backup.dying_writer import MOMENTS
from tests.short_form import short_form

pytestmark = pytest.mark.anyio
FIRST, SECOND = (f"acme/web/vol_a/2026112{day}T161500Z-aaaa" for day in (3, 4))
OBJECTS = 5
"""Of the second backup: two packs, two segments, a manifest."""


@pytest.mark.parametrize(
    "moment", short_form(MOMENTS, lambda moment: moment == "within", "a death within an object is the short form")
)
async def test_backup_that_was_killed_at_any_object_is_finished_by_the_next_process(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path, moment: str
) -> None:
    first, old = await save(local, volume, FIRST, ABOUT, None), bytes_of(volume)
    with volume.open("r+b") as file:
        file.write(b"new")
        file.seek(SEGMENT_BYTES)
        file.write(b"new")
    for dies_at in range(1, OBJECTS + 1):
        place, scratch = tmp_path / f"place{dies_at}", tmp_path / "other"
        shutil.copytree(kept, place)
        arguments = [place, scratch, volume, SECOND, FIRST, dies_at, moment]
        command = [sys.executable, "-m", "tests.backup.dying_writer", *map(str, arguments)]
        ended = await anyio.run_process(command, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        next_one = opened(DirectoryBackend(place), scratch)
        whole = dies_at == OBJECTS and moment == "after"
        assert await next_one.backups("") == ([FIRST, SECOND] if whole else [FIRST])
        second = await save(next_one, volume, SECOND, ABOUT, first)
        for manifest, content in ((first, old), (second, bytes_of(volume))):
            await verify(next_one, manifest, set())
            await restore(next_one, manifest, tmp_path / "again")
            assert bytes_of(tmp_path / "again") == content
        assert await next_one.backups("") == [FIRST, SECOND]
