"""Half a snapshot is taken away, and nothing that a VMM put in its place."""

from pathlib import Path

from hawker.runtime.vmm.snapshot_files import discard

INSIDE = "/cell/vmm/snapshot"


def test_its_files_are_taken_away_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    for name in ("state", "memory", "other"):
        (tmp_path / "snapshot" / name).write_bytes(b"x")
    discard(tmp_path, INSIDE, ("state", "memory", "absent"))
    assert [file.name for file in (tmp_path / "snapshot").iterdir()] == ["other"]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    discard(tmp_path, INSIDE, ("state",))
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "state").touch()
    (tmp_path / "snapshot").symlink_to(other)
    discard(tmp_path, INSIDE, ("state",))
    assert (other / "state").exists()


def test_a_link_in_the_place_of_a_file_is_taken_away_itself(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "mine").touch()
    (tmp_path / "snapshot" / "state").symlink_to(tmp_path / "mine")
    discard(tmp_path, INSIDE, ("state",))
    assert (tmp_path / "mine").exists() and not (tmp_path / "snapshot" / "state").is_symlink()
