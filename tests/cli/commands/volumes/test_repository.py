"""Facts about commands on a repository of backups, which no node takes part in."""

import subprocess
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveRefused
from hawker.backup.checks import BackupCheck
from hawker.backup.format import RepositoryConfig
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


def test_backup_that_this_host_has_no_place_for_is_an_error_that_names_it(
    hawker: Hawker, kept: Kept, tmp_path: Path
) -> None:
    said = hawker(*words(kept, "extract", KEPT, str(tmp_path / "none" / "out")))
    assert (said.status, said.err) == (ExitStatus.FAILED, f"error: {tmp_path}/none/out: No such file or directory\n")


@pytest.mark.root
def test_full_disk_is_an_error_that_names_it_and_nothing_stays(hawker: Hawker, kept: Kept, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], check=True)
    try:
        for said, place in (
            (hawker(*words(kept, "extract", KEPT, str(full / "out"))), full / "out"),
            (hawker(*words(kept, "verify"), "--restore", "--scratch", str(full)), full),
        ):
            assert (said.status, said.err) == (ExitStatus.FAILED, f"error: {place}: No space left on device\n")
        assert not list(full.iterdir())
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_another_passphrase_is_refused(hawker: Hawker, kept: Kept) -> None:
    kept.passphrase.write_bytes(b"another passphrase")
    said = hawker("volumes", "verify", str(kept.place), "--passphrase-file", str(kept.passphrase))
    assert said.status == ExitStatus.FAILED and "does not open the backups" in said.err


@pytest.mark.parametrize("command", ["contents", "verify", "prune"])
def test_directory_without_backups_is_named_and_becomes_no_repository(
    hawker: Hawker, kept: Kept, tmp_path: Path, command: str
) -> None:
    """Of a name with a slip in it, nothing is said to be whole."""
    said = hawker("volumes", command, str(tmp_path / "slip"), "--passphrase-file", str(kept.passphrase))
    assert said.status != ExitStatus.OK and f"there are no backups in {tmp_path / 'slip'}" in said.err
    assert not (tmp_path / "slip").exists()


@pytest.mark.parametrize("command", ["contents", "verify", "prune"])
def test_repository_that_lost_its_key_or_is_of_another_format_says_what_to_do(
    hawker: Hawker, kept: Kept, command: str
) -> None:
    config = kept.place / "config"
    newer = msgspec.structs.replace(msgspec.msgpack.decode(config.read_bytes(), type=RepositoryConfig), format=2)
    config.write_bytes(msgspec.msgpack.encode(newer))
    said = hawker(*words(kept, command))
    assert said.status == ExitStatus.FAILED and "has format 2; this version reads 1: use the version" in said.err
    config.unlink()
    said = hawker(*words(kept, command))
    assert said.status == ExitStatus.FAILED and "`hawker volumes key import`" in said.err


def test_contents_of_a_repository_are_listed_with_sizes(hawker: Hawker, kept: Kept) -> None:
    heading, row = hawker(*words(kept, "contents")).out.splitlines()
    assert heading.split() == ["BACKUP", "NAME", "SIZE", "STORED", "SENT"]
    assert row.split()[:6] == [KEPT, "data", "205.1", "KiB", "205.1", "KiB"]
    (kept.place / "backups" / KEPT).write_bytes(b"rot")
    assert hawker(*words(kept, "contents")).out.splitlines()[1].split() == [KEPT, "damaged", "-", "-", "-"]


def test_a_backup_is_forgotten_by_name_and_no_other(hawker: Hawker, kept: Kept) -> None:
    said = hawker(*words(kept, "forget", KEPT, f"{KEPT}x"))
    assert said.status == ExitStatus.NOT_FOUND and "none is removed" in said.err
    assert (kept.place / "backups" / KEPT).exists()
    assert hawker(*words(kept, "forget", KEPT)).status == ExitStatus.OK
    assert not (kept.place / "backups" / KEPT).exists()


def test_a_sample_finds_damage_in_what_it_reads(hawker: Hawker, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.damage()
    monkeypatch.setattr("hawker.clock.SystemClock.random", lambda clock: 0.09)
    assert "damaged" in hawker(*words(kept, "verify", "--sample", "10")).out
    assert hawker(*words(kept, "verify", "--sample", "9")).out == f"{KEPT}  whole\n"


def ext4_volume(kept: Kept, backup: str, *, broken: bool = False) -> None:
    """A backup of a file system, which is as it should be, or was broken before it was saved."""
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", str(kept.volume), "16M"], check=True)
    if broken:
        subprocess.run(["debugfs", "-w", "-R", "freei <2>", str(kept.volume)], check=True, capture_output=True)
    repository = opened(DirectoryBackend(kept.place), kept.place.parent / "way")
    anyio.run(save, repository, kept.volume, backup, ABOUT, None)


def checks_of(kept: Kept) -> dict[str, BackupCheck]:
    return anyio.run(opened(DirectoryBackend(kept.place), kept.place.parent / "way").checks).backups


def test_newest_backup_of_each_volume_is_restored_and_its_file_system_checked(
    hawker: Hawker, kept: Kept, tmp_path: Path
) -> None:
    """Also one that came back as it was saved, and was broken then."""
    sound, broken = (f"acme/web/{volume}/20990102T030405Z-00ff" for volume in ("vol_a", "vol_b"))
    ext4_volume(kept, sound)
    ext4_volume(kept, broken, broken=True)
    (tmp_path / "scratch").mkdir()
    said = hawker(*words(kept, "verify", "--restore", "--scratch", str(tmp_path / "scratch")))
    assert said.status == ExitStatus.FAILED
    assert said.out.splitlines() == [
        f"{sound}  whole, and restored",
        f"{broken}  damaged: its filesystem is damaged: e2fsck -fn ended with 4",
    ]
    assert list((tmp_path / "scratch").iterdir()) == []
    checks = checks_of(kept)
    assert checks[sound].restored_at == checks[sound].verified_at is not None and checks[sound].found is None
    assert checks[broken].found is not None and KEPT not in checks


def test_verdicts_are_written_down_for_whoever_lists_backups(hawker: Hawker, kept: Kept) -> None:
    assert hawker(*words(kept, "verify", "--sample", "50")).status == ExitStatus.OK
    assert checks_of(kept) == {}, "half of a backup says nothing of the whole"
    assert hawker(*words(kept, "verify")).status == ExitStatus.OK
    assert checks_of(kept)[KEPT].verified_at is not None
    kept.damage()
    assert hawker(*words(kept, "verify")).status == ExitStatus.FAILED
    assert checks_of(kept)[KEPT].found is not None


def test_place_that_may_only_be_read_is_verified_and_stays_as_it_is(
    hawker: Hawker, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: DirectoryBackend, key: str, file: Path) -> bool:
        raise ArchiveRefused("the place may only be read")

    monkeypatch.setattr(DirectoryBackend, "put_new", refuse)
    said = hawker(*words(kept, "verify"))
    assert (said.status, said.out) == (ExitStatus.OK, f"{KEPT}  whole\n")
    assert "the list of backups is not updated" in said.err and checks_of(kept) == {}
