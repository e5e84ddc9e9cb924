"""A process that is killed at any statement of the database, or at any write of the lease: what it acknowledged is
there, and no version is ever said twice with different content. Each process is a fork that kills itself.
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from hawker.catalog.change import Position, ReplicatedTx, Scope
from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock
from hawker.ids import NodeId
from tests.catalog.disk import EPOCH, THINGS, A, B, opened, put, rows, said, thing, tx

Tell = Callable[[str], None]
POINTS = [*range(1, 24), 29, 37, 53, 71, 97]


def found(folder: Path, node: NodeId = A) -> SqliteStorage:
    return SqliteStorage(folder / f"{node}.db", node, ManualClock(), [THINGS], boot=lambda: "boot")


def killed_while(work: Callable[[Tell], None]) -> list[str]:
    """What the process told before its end, which must be by its own hand, or that it had nothing more to do."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(lambda line: _ignore(os.write(writing, f"{line}\n".encode())))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the process failed: {status}"
    return lines


def _ignore(_: object) -> None:
    pass


class Fuse:
    """Kills the process when it has burnt down."""

    def __init__(self, length: int) -> None:
        self._left = length

    def burn(self, *_: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def doomed(storage: SqliteStorage, point: int) -> SqliteStorage:
    storage._connection.trace_v2(apsw.SQLITE_TRACE_STMT, Fuse(point).burn)
    return storage


@pytest.mark.parametrize("first", [POINTS[start::4] for start in range(4)])
def test_acknowledged_commit_survives_and_no_version_is_used_twice(tmp_path: Path, first: list[int]) -> None:
    opened(tmp_path).close()
    heard: dict[int, str] = {}
    for point in first:

        def work(tell: Tell, point: int = point) -> None:
            storage = doomed(found(tmp_path), point)
            for number in range(10):
                change = said(storage, put(number, point))
                tell(f"{change.version} {change.ops}")

        for line in killed_while(work):
            version, _, content = line.partition(" ")
            assert int(version) not in heard
            heard[int(version)] = content
        storage = found(tmp_path)
        assert storage.proven()
        assert storage.positions(Scope.REGION)[A].epoch == EPOCH
        kept = {change.version: str(change.ops) for change in storage.replay(A, Scope.REGION, 0, 1 << 30)}
        assert heard.items() <= kept.items()
        assert len(kept) - len(heard) <= 1, "one at most was on disk and not yet acknowledged"
        heard = kept
        storage.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_replica_that_is_killed_has_a_prefix_of_each_stream(tmp_path: Path, seed: int) -> None:
    changes: list[ReplicatedTx] = [
        tx(version, thing(version, version), thing(-version, 1)) for version in range(1, 200)
    ]
    opened(tmp_path, B).close()
    for point in POINTS[seed::2]:

        def work(tell: Tell, point: int = point) -> None:
            storage = doomed(found(tmp_path, B), point)
            at = storage.positions(Scope.REGION).get(A, Position()).applied
            for begin in range(at, len(changes), 3):
                outcome = storage.apply(changes[begin : begin + 3])
                tell(str(outcome.positions[A, Scope.REGION].applied))

        lines = killed_while(work)
        storage = found(tmp_path, B)
        applied = storage.positions(Scope.REGION).get(A, Position()).applied
        assert applied >= int(lines[-1] if lines else 0)
        assert rows(storage, "SELECT id FROM things WHERE id > 0 ORDER BY 1") == [(n,) for n in range(1, applied + 1)]
        assert rows(storage, "SELECT count(*) FROM things") == [(2 * applied,)]
        assert len(storage.replay(A, Scope.REGION, 0, 1 << 30)) == applied
        storage.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_that_is_half_installed_is_taken_stream_by_stream(tmp_path: Path, seed: int) -> None:
    source = opened(tmp_path)
    said(source, *(put(number, number) for number in range(50)))
    source.apply([tx(1, *(thing(number, 1, B) for number in range(50)), node=B)])
    snapshot = source.snapshot(tmp_path / "snapshot")
    node = NodeId("cccccccc")
    opened(tmp_path, node).close()
    for point in (POINTS[seed::2])[:8]:
        folder = tmp_path / f"at{point}"
        folder.mkdir()
        for file in tmp_path.glob(f"{node}.db*"):
            shutil.copy(file, folder / file.name)

        def work(tell: Tell, point: int = point, folder: Path = folder) -> None:
            doomed(found(folder, node), point).install(tmp_path / "snapshot", snapshot.digest)
            tell("done")

        done = killed_while(work)
        storage = found(folder, node)
        positions = storage.positions(Scope.REGION)
        for origin in (A, B):
            count = 50 if positions.get(origin, Position()).applied == 1 else 0
            assert rows(storage, f"SELECT count(*) FROM things WHERE node = '{origin}'") == [(count,)]
            assert count == 50 or not done
        storage.install(tmp_path / "snapshot", snapshot.digest)
        assert rows(storage) == rows(source)
        storage.close()


@pytest.mark.parametrize("point", range(1, 9))
def test_a_crash_while_it_opens_or_promises_keeps_the_epoch(tmp_path: Path, point: int) -> None:
    """At each sync of the lease: two when it begins, two when the database has its name, then where a promise ends."""
    storage = opened(tmp_path)
    said(storage, put(1, 10))
    storage.close()

    def work(tell: Tell) -> None:
        fuse, sync = Fuse(point), os.fsync

        def watched(fd: Any) -> None:
            fuse.burn()
            sync(fd)

        os.fsync = watched  # this process is a fork, and ends here
        storage = found(tmp_path)
        for number in range(600):
            tell(str(said(storage, put(number, point)).version))

    lines = killed_while(work)
    storage = found(tmp_path)
    assert storage.proven()
    version = said(storage, put(1, 99)).version
    assert version == int(lines[-1] if lines else 1) + 1
    assert storage.positions(Scope.REGION)[A].epoch == EPOCH
