from pathlib import Path

import anyio
import pytest

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.archive.directory import DirectoryBackend
from hawker.backup.transfer import save
from hawker.cli.exits import ExitStatus
from tests.backup.conftest import ABOUT, PASSPHRASE, bytes_of, files_below, opened
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import BACKUP, TAKEN, volume

KEPT = "acme/web/vol_a/20260102T030405Z-00ff"


def shelve(node: FakeNode) -> None:
    node.add("shop")
    node.keep("shop", volume())


def test_a_backup_is_waited_for_and_its_name_printed(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["waiting"]
    said = hawker("volumes", "backup", "data")
    assert (said.status, said.out) == (ExitStatus.OK, f"{BACKUP}\n")
    assert "7.0 MiB stored, 1.0 MiB sent" in said.err
    assert {call.params.snapshot for call in node.calls["get_backup"]} == {TAKEN}


def test_a_backup_that_fails_says_why(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["failed"]
    said = hawker("volumes", "backup", "data")
    assert said.status == ExitStatus.FAILED and "the place is full" in said.err


def test_a_backup_goes_on_without_who_waited(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["running"]
    said = hawker("volumes", "backup", "data", "--timeout", "0")
    assert said.status == ExitStatus.FAILED and "still running after 0 s, and goes on" in said.err


def test_nobody_has_to_wait_for_a_backup(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    assert hawker("volumes", "backup", "data", "--no-wait").out == f"{BACKUP}\n"
    assert "get_backup" not in node.calls


def test_backups_of_an_app_are_listed(node: FakeNode, hawker: Hawker) -> None:
    heading, row = hawker("volumes", "backups", "-a", "shop").out.splitlines()
    assert heading.split() == ["BACKUP", "VOLUME"] and row.split() == [BACKUP, "vol_0000000000000001"]


def test_a_backup_is_restored_into_a_new_volume_of_its_app(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("volumes", "restore", BACKUP, "-a", "shop", "--name", "data", "--size", "9")
    assert said.status == ExitStatus.OK
    assert node.call("create_volume").body == CreateVolumeRequest(name="data", size_gb=9, backup=BACKUP)


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


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    (tmp_path / "kept").mkdir()
    return Kept(tmp_path / "kept")


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
