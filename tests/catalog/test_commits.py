from collections.abc import Sequence
from pathlib import Path

import pytest

from hawker.catalog.capture import StatementFailed
from hawker.catalog.change import Position, Scope
from hawker.catalog.commits import STEP, FreshnessFile, boot_id
from hawker.catalog.contract import Committed, LocalTransaction, Statement
from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, HawkerError, Unavailable
from tests.catalog.disk import A, B, opened, put, rows, said, thing, tx


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


ENDLESS = """INSERT INTO things WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n)
    SELECT 'aaaaaaaa', i, i FROM n"""


class Hasty(ManualClock):
    def monotonic(self) -> float:
        self.advance(0.01)
        return super().monotonic()


def local(*statements: Statement, timeout_s: float | None = None) -> LocalTransaction:
    return LocalTransaction(statements=statements, at=1.0, timeout_s=timeout_s)


def came_to(results: Sequence[Committed | HawkerError]) -> list[int | str]:
    """The version of each, or the error."""
    return [result.txs[0].version if isinstance(result, Committed) else type(result).__name__ for result in results]


def test_a_group_is_as_many_transactions_as_one_after_the_other(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    results = storage.commit_all([local(put(1, 10)), local(put(1, 11)), local(put(1, 11), put(3, 30))])
    assert came_to(results) == [1, 2, 3]
    said_by_all = [change for result in results if isinstance(result, Committed) for change in result.txs]
    assert said_by_all == [tx(1, thing(1, 10)), tx(2, thing(1, 11)), tx(3, thing(3, 30))]
    assert [*storage.replay(A, Scope.REGION, 0, 1 << 20)] == said_by_all
    reader = opened(tmp_path, B)
    reader.apply(said_by_all)
    assert rows(reader) == rows(storage)


def test_one_that_fails_does_not_touch_the_others(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    bad = [local(put(2, 20), Statement(query="nonsense")), local(), local(put(9, 9), put(1, 1, B))]
    results = storage.commit_all([local(put(1, 10)), *bad, local(put(3, 30))])
    assert came_to(results) == [1, "StatementFailed", "StatementFailed", "StatementFailed", 2]
    assert rows(storage) == [(A, 1, 10), (A, 3, 30)]
    assert said(storage, put(4, 40)).version == 3


def test_one_that_is_interrupted_takes_nobody_with_it(tmp_path: Path) -> None:
    """SQLite rolls back the whole transaction then, not the savepoint."""
    storage = opened(tmp_path, clock=Hasty())
    slow = local(put(2, 20), Statement(query=ENDLESS), timeout_s=1.0)
    results = storage.commit_all([local(put(1, 10)), slow, local(put(3, 30)), slow])
    assert came_to(results) == [1, "DeadlineExceeded", 2, "DeadlineExceeded"]
    assert rows(storage) == [(A, 1, 10), (A, 3, 30)]
    with pytest.raises(DeadlineExceeded):
        storage.commit(slow.statements, 1.0, timeout_s=1.0)


def test_nothing_is_a_version_in_a_group_either(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    first, second = storage.commit_all([local(put(1, 10)), local(put(1, 10))])
    assert isinstance(second, Committed)
    assert (second.txs, second.token) == ((), None)
    assert came_to([first]) == [1]


def test_a_promise_that_cannot_be_written_is_said_so_and_nothing_was_said(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.commit_all([local(put(number, 1)) for number in range(STEP)])
    (tmp_path / f"{A}.db.lease.new").mkdir()
    with pytest.raises(Unavailable, match="cannot be written now"):
        storage.commit_all([local(put(STEP, 1))])
    assert storage.positions(Scope.REGION)[A].applied == STEP
    (tmp_path / f"{A}.db.lease.new").rmdir()
    assert said(storage, put(STEP, 1)).version == STEP + 1


def test_an_error_of_one_is_raised_where_it_was_alone(tmp_path: Path) -> None:
    with pytest.raises(StatementFailed, match="no such table"):
        opened(tmp_path).commit([Statement(query="SELECT * FROM nowhere")], 1.0)
