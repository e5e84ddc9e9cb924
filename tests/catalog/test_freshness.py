from pathlib import Path

import pytest

from hawker.catalog.change import Position, Scope
from hawker.catalog.freshness import STEP, FreshnessFile, boot_id


def at(epoch: int, applied: int) -> dict[Scope, Position]:
    return {Scope.REGION: Position(epoch, applied), Scope.GLOBAL: Position(epoch, 1)}


def begun(file: Path, applied: int = 10) -> FreshnessFile:
    freshness = FreshnessFile(file, "boot")
    freshness.begin("run", "", at(1, applied))
    freshness.settle()
    return freshness


@pytest.mark.parametrize(
    ("boot", "run", "epoch", "applied", "proven"),
    [
        ("boot", "run", 1, 10, True),
        ("boot", "run", 1, 10 + STEP, True),
        ("boot", "run", 1, 9, False),
        ("boot", "run", 1, 11 + STEP, False),
        ("boot", "run", 0, 10, False),
        ("boot", "run", 2, 10, False),
        ("boot", "another", 1, 10, False),
        ("boot", "", 1, 10, False),
        ("other", "run", 1, 10, False),
        ("", "run", 1, 10, False),
    ],
)
def test_after_a_crash(tmp_path: Path, boot: str, run: str, epoch: int, applied: int, proven: bool) -> None:
    begun(tmp_path / "lease")
    assert FreshnessFile(tmp_path / "lease", boot).proves(run, {Scope.REGION: Position(epoch, applied)}) is proven


@pytest.mark.parametrize(("boot", "applied", "proven"), [("other", 20, True), ("boot", 19, False), ("boot", 21, False)])
def test_after_a_close_in_good_order(tmp_path: Path, boot: str, applied: int, proven: bool) -> None:
    begun(tmp_path / "lease").end(at(1, 20))
    assert FreshnessFile(tmp_path / "lease", boot).proves("run", at(1, applied)) is proven


def test_the_promise_is_written_ahead_in_steps(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    freshness = begun(file, 0)
    before = file.stat().st_ino
    for version in range(1, STEP + 1):
        freshness.cover(Scope.REGION, Position(1, version))
    assert file.stat().st_ino == before
    freshness.cover(Scope.REGION, Position(1, STEP + 1))
    assert file.stat().st_ino != before
    assert FreshnessFile(file, "boot").proves("run", at(1, STEP)), "the version may have been rolled back"
    assert FreshnessFile(file, "boot").proves("run", at(1, 2 * STEP))
    assert not FreshnessFile(file, "boot").proves("run", at(1, STEP - 1)), "a copy of an hour ago"


def test_a_new_epoch_is_promised_at_once(tmp_path: Path) -> None:
    freshness = begun(tmp_path / "lease")
    freshness.cover(Scope.REGION, Position(2, 1))
    read = FreshnessFile(tmp_path / "lease", "boot")
    assert (read.epoch(Scope.REGION), read.epoch(Scope.GLOBAL)) == (2, 1)


def test_a_crash_while_it_begins_is_no_copy(tmp_path: Path) -> None:
    freshness = begun(tmp_path / "lease")
    freshness.begin("next", "run", at(1, 10))
    for run in ("run", "next"):
        assert FreshnessFile(tmp_path / "lease", "boot").proves(run, at(1, 10))
    freshness.settle()
    assert not FreshnessFile(tmp_path / "lease", "boot").proves("run", at(1, 10))


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_without_a_readable_file_nothing_is_proven(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "lease"
    if content is not None:
        file.write_bytes(content)
    freshness = FreshnessFile(file, "boot")
    assert not freshness.proves("run", at(0, 0))
    assert freshness.epoch(Scope.REGION) == -1


def test_this_boot_has_a_name() -> None:
    assert boot_id() == boot_id()
    assert len(boot_id()) in (0, 36)
