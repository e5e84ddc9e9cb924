"""Facts about commands on a repository of backups, which no node takes part in."""

from pathlib import Path

import anyio
import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.backup.transfer import save
from hawker.cli.exits import ExitStatus
from tests.backup.conftest import ABOUT, bytes_of, opened
from tests.cli.commands.volumes.kept import KEPT, Kept, words
from tests.cli.conftest import Hawker


def test_backups_are_verified_without_a_node(hawker: Hawker, kept: Kept) -> None:
    said = hawker("volumes", "verify", str(kept.place), "--passphrase-file", str(kept.passphrase))
    assert (said.status, said.out) == (ExitStatus.OK, f"{KEPT}  whole\n")
    kept.damage()
    said = hawker("volumes", "verify", str(kept.place), KEPT, "--passphrase-file", str(kept.passphrase))
    assert said.status == ExitStatus.FAILED and said.out.startswith(f"{KEPT}  damaged: packs/")


def test_backups_beyond_their_retention_are_pruned_without_a_node(hawker: Hawker, kept: Kept) -> None:
    later = f"{KEPT.rpartition('/')[0]}/20991231T000000Z-ffff"
    kept.volume.write_bytes(b"other blocks " * 10_000)
    anyio.run(save, opened(DirectoryBackend(kept.place), kept.place.parent / "way"), kept.volume, later, ABOUT, None)
    words = ("volumes", "prune", str(kept.place), "--passphrase-file", str(kept.passphrase))
    assert hawker(*words).out == "0 objects removed, 0 are marked and go in a prune after seven days\n"
    said = hawker(*words, "--daily", "1", "--weekly", "0")
    assert said.out.splitlines() == [
        f"removed backup {KEPT}",
        "0 objects removed, 2 are marked and go in a prune after seven days",
    ]
    assert hawker("volumes", "verify", str(kept.place), *words[-2:]).out == f"{later}  whole\n"


def test_a_backup_is_extracted_without_a_node_and_never_half(hawker: Hawker, kept: Kept, tmp_path: Path) -> None:
    arguments = ("volumes", "extract", str(kept.place), KEPT, str(tmp_path / "out"))
    options = ("--passphrase-file", str(kept.passphrase))
    assert hawker(*arguments, *options).status == ExitStatus.OK
    assert bytes_of(tmp_path / "out") == bytes_of(kept.volume)
    assert "is there already" in hawker(*arguments, *options).err
    (tmp_path / "out").unlink()
    kept.damage()
    assert hawker(*arguments, *options).status == ExitStatus.FAILED
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("out")]


def test_another_passphrase_is_refused(hawker: Hawker, kept: Kept) -> None:
    kept.passphrase.write_bytes(b"another passphrase")
    said = hawker("volumes", "verify", str(kept.place), "--passphrase-file", str(kept.passphrase))
    assert said.status == ExitStatus.FAILED and "does not open the backups" in said.err


def test_contents_of_a_repository_are_listed_with_sizes(hawker: Hawker, kept: Kept) -> None:
    heading, row = hawker(*words(kept, "contents")).out.splitlines()
    assert heading.split() == ["BACKUP", "NAME", "SIZE", "STORED", "SENT"]
    assert row.split() == [KEPT, "data", "0.2", "0.2", "0.0"]
    (kept.place / "backups" / KEPT).write_bytes(b"rot")
    assert hawker(*words(kept, "contents")).out.splitlines()[1].split() == [KEPT, "damaged", "-", "-", "-"]


def test_a_backup_is_forgotten_by_name_and_no_other(hawker: Hawker, kept: Kept) -> None:
    said = hawker(*words(kept, "forget", KEPT, f"{KEPT}x"))
    assert said.status == ExitStatus.FAILED and "none is removed" in said.err
    assert (kept.place / "backups" / KEPT).exists()
    assert hawker(*words(kept, "forget", KEPT)).status == ExitStatus.OK
    assert not (kept.place / "backups" / KEPT).exists()


def test_a_sample_finds_damage_in_what_it_reads(hawker: Hawker, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.damage()
    monkeypatch.setattr("hawker.clock.SystemClock.random", lambda clock: 0.09)
    assert "damaged" in hawker(*words(kept, "verify", "--sample", "10")).out
    assert hawker(*words(kept, "verify", "--sample", "9")).out == f"{KEPT}  whole\n"
