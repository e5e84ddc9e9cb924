"""Facts about the key of a repository of backups."""

from pathlib import Path

from hawker.cli.exits import ExitStatus
from tests.backup.conftest import bytes_of
from tests.cli.commands.volumes.kept import KEPT, Kept, words
from tests.cli.conftest import Hawker


def test_an_exported_key_restores_a_place_that_lost_its_own(hawker: Hawker, kept: Kept, tmp_path: Path) -> None:
    recovery, key = tmp_path / "recovery", tmp_path / "key"
    recovery.write_bytes(b"another horse battery")
    made = hawker("volumes", "key", *words(kept, "export", str(key))[1:], "--new-passphrase-file", str(recovery))
    assert (made.status, key.stat().st_mode & 0o777) == (ExitStatus.OK, 0o600)
    again = ("volumes", "key", "import", str(kept.place), str(key), "--passphrase-file")
    assert "has a key" in hawker(*again, str(recovery)).err
    (kept.place / "config").unlink()
    assert "with the one that it was exported under" in hawker(*again, str(kept.passphrase)).err
    assert hawker(*again, str(recovery)).status == ExitStatus.OK
    kept.passphrase = recovery
    assert hawker(*words(kept, "extract", KEPT, str(tmp_path / "out"))).status == ExitStatus.OK
    assert bytes_of(tmp_path / "out") == bytes_of(kept.volume)


def test_a_key_of_another_repository_is_not_imported(hawker: Hawker, kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Kept(tmp_path / "other")
    (kept.place / "config").unlink()
    said = hawker("volumes", "key", *words(kept, "import", str(other.place / "config"))[1:])
    assert said.status == ExitStatus.FAILED and f"does not open backup {KEPT}" in said.err
    assert not (kept.place / "config").exists()


def test_lost_key_is_not_exported_and_no_other_file_is_taken_for_one(
    hawker: Hawker, kept: Kept, tmp_path: Path
) -> None:
    (kept.place / "config").unlink()
    said = hawker("volumes", "key", *words(kept, "export", str(tmp_path / "key"))[1:])
    assert said.status == ExitStatus.FAILED and "has backups and no `config`" in said.err
    said = hawker("volumes", "key", *words(kept, "import", str(kept.passphrase))[1:])
    assert said.status == ExitStatus.FAILED and "no key that `hawker volumes key export` wrote" in said.err
    assert not (kept.place / "config").exists()


def test_a_changed_passphrase_opens_and_the_old_one_does_not(hawker: Hawker, kept: Kept, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.write_bytes(b"another horse battery")
    change = ("volumes", "key", *words(kept, "passphrase")[1:], "--new-passphrase-file", str(fresh))
    assert hawker(*change).status == ExitStatus.OK
    assert "does not open" in hawker(*words(kept, "verify")).err
    kept.passphrase = fresh
    assert hawker(*words(kept, "verify")).out == f"{KEPT}  whole\n"
