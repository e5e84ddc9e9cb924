"""What the catalog's database does alone, without a network: commits, batches from other nodes, bytes per row, an added
column, snapshots. Run it on a quiet host: `python bench/catalog_storage.py [--rows N] [--folder DIR]`; the folder
says which disk. `bench/catalog.py` calls `measure` and puts what it returns beside PROTOCOL.md section 5.
"""

import argparse
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from hawker.catalog.change import Op, ReplicatedTx, Scope
from hawker.catalog.contract import LocalTransaction, Statement
from hawker.catalog.storage import SqliteStorage
from hawker.clock import SystemClock
from hawker.ids import NodeId

OWNER, READER, FRESH = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
SLIM_OWNER, SLIM_READER = NodeId("dddddddd"), NodeId("eeeeeeee")
SMALL = """CREATE TABLE small (node TEXT NOT NULL, id INTEGER NOT NULL, a INTEGER, b TEXT, c REAL, {more}
    PRIMARY KEY (node, id)) WITHOUT ROWID;"""
PLAIN = SMALL.format(more="")
SLIM = "CREATE TABLE slim (node TEXT NOT NULL, id INTEGER NOT NULL, a INTEGER, b TEXT, PRIMARY KEY (node, id))"
SLIM_ROWS = 100_000
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)"
WIDER = SMALL.format(more="d INTEGER NOT NULL DEFAULT 0, ")
LOADED_AT_ONCE = 20_000
ROWS_PER_TX = 100
GROUP = 16
COMMITS, APPLIED = 2_000, 40_000


def measure(rows: int, folder: Path) -> Iterator[tuple[str, str]]:
    """A name and a figure at a time."""
    here = Path(mkdtemp(dir=folder, prefix="catalog-"))
    try:
        owner = opened(here, OWNER)
        yield from loading(owner, rows)
        yield from passing_on(here, owner, rows)
        reader = opened(here, READER)
        yield from applying(reader, rows)
        yield from committing(owner, rows)
        yield from widening(owner)
        yield from storing(here)
        for storage in (owner, reader):
            storage.close()
    finally:
        shutil.rmtree(here)


def opened(folder: Path, node: NodeId, table: str = PLAIN) -> SqliteStorage:
    storage = SqliteStorage(folder / f"{node}.db", node, SystemClock(), [table])
    for scope in () if storage.proven() else Scope:
        storage.renew(scope, 1)
    return storage


def loading(owner: SqliteStorage, rows: int) -> Iterator[tuple[str, str]]:
    text = f"{NUMBERS} INSERT INTO small SELECT '{OWNER}', i, random() % 100000, hex(randomblob(6)), i * 0.5 FROM n"
    with timed() as took:
        for begin in range(0, rows, LOADED_AT_ONCE):
            end = min(rows, begin + LOADED_AT_ONCE) - 1
            owner.commit([Statement(query=text, params=(begin, end))], time.time())
    yield "local rows, 20,000 in a transaction", f"{rows / took():,.0f} rows/s"


def passing_on(here: Path, owner: SqliteStorage, rows: int) -> Iterator[tuple[str, str]]:
    reader = opened(here, READER)
    with timed() as took:
        snapshot = owner.snapshot(here / "snapshot")
    yield f"snapshot of {rows:,} rows: made", f"{took():.1f} s, {snapshot.size_bytes / 1e6:.0f} MB"
    with timed() as took:
        reader.install(here / "snapshot", snapshot.digest)
    yield f"snapshot of {rows:,} rows: installed", f"{took():.1f} s"
    snapshot.close()
    reader.close()
    yield "bytes per row of 5 small columns, all told", f"{(here / f'{READER}.db').stat().st_size / rows:.0f}"
    fresh = opened(here, FRESH)
    with timed() as took:
        streamed(owner, fresh)
    yield f"delta of {rows:,} rows in parts of 1 MiB", f"{took():.1f} s"
    fresh.close()
    (here / f"{FRESH}.db").unlink()


def streamed(owner: SqliteStorage, reader: SqliteStorage) -> None:
    after, since = -1, -1
    while True:
        part = owner.delta(OWNER, Scope.REGION, after, 1 << 20, since=since)
        reader.apply([part])
        after, since = part.upto, part.head if since < 0 else since
        if part.last:
            return


def applying(reader: SqliteStorage, rows: int) -> Iterator[tuple[str, str]]:
    for name, among in (("random rows", rows), ("10,000 hot rows", min(rows, 10_000))):
        for count in (ROWS_PER_TX, 1):
            changes = random_changes(reader, among, APPLIED if count > 1 else APPLIED // 4, count)
            batches = [changes[begin : begin + 100] for begin in range(0, len(changes), 100)]
            with timed() as took:
                for batch in batches:
                    reader.apply(batch)
            done = len(changes) * count
            yield f"remote apply, {name} of {rows:,}, {count} a transaction", f"{done / took():,.0f} rows/s"


def random_changes(reader: SqliteStorage, among: int, total: int, width: int) -> Sequence[ReplicatedTx]:
    at = reader.positions(Scope.REGION)[OWNER]
    chance = random.Random(total + width)
    columns = ("a", "b", "c")

    def op() -> Op:
        return Op("small", (OWNER, chance.randrange(among)), columns, (chance.randrange(1000), "changed", 0.25))

    versions = range(at.applied + 1, at.applied + 1 + total // width)
    return [
        ReplicatedTx(OWNER, Scope.REGION, at.epoch, version, 0.0, tuple(op() for _ in range(width)))
        for version in versions
    ]


def committing(owner: SqliteStorage, rows: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(1)
    samples = []
    for number in range(COMMITS):
        statement = Statement(
            query="UPDATE small SET a = ? WHERE node = ? AND id = ?", params=(number, OWNER, chance.randrange(rows))
        )
        begun = time.perf_counter()
        owner.commit([statement], time.time())
        samples.append(time.perf_counter() - begun)
    ordered = sorted(samples)
    p50, p99 = (ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.99))
    yield "local commits of one row, FULL sync", f"{COMMITS / sum(samples):,.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms"
    update = "UPDATE small SET b = ? WHERE node = ? AND id = ?"
    waiting = [
        LocalTransaction(
            statements=(Statement(query=update, params=(str(number), OWNER, chance.randrange(rows))),), at=time.time()
        )
        for number in range(COMMITS)
    ]
    with timed() as took:
        for begin in range(0, COMMITS, GROUP):
            owner.commit_all(waiting[begin : begin + GROUP])
    yield f"the same, {GROUP} that wait together", f"{COMMITS / took():,.0f}/s"


def storing(here: Path) -> Iterator[tuple[str, str]]:
    """What a reader's file has of a row, all that the catalog knows beside it included."""
    table = f"{SLIM} WITHOUT ROWID;"
    owner, reader = opened(here, SLIM_OWNER, table), opened(here, SLIM_READER, table)
    text = f"{NUMBERS} INSERT INTO slim SELECT '{SLIM_OWNER}', i, random() % 100000, hex(randomblob(6)) FROM n"
    owner.commit([Statement(query=text, params=(1, SLIM_ROWS))], time.time())
    snapshot = owner.snapshot(here / "slim")
    reader.install(here / "slim", snapshot.digest)
    snapshot.close()
    for storage in (owner, reader):
        storage.close()
    size = (here / f"{SLIM_READER}.db").stat().st_size
    yield "bytes per row of 4 small columns, all told", f"{size / SLIM_ROWS:.0f}"


def widening(owner: SqliteStorage) -> Iterator[tuple[str, str]]:
    before = owner.positions(Scope.REGION)
    with timed() as took:
        owner.declare([WIDER])
    changes = sum(owner.positions(Scope.REGION)[node].applied - at.applied for node, at in before.items())
    yield "add a column", f"{took() * 1000:.0f} ms, {changes} changes"


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    begun = time.perf_counter()
    ended: list[float] = []
    yield lambda: ended[0]
    ended.append(time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path())
    asked = parser.parse_args()
    for name, figure in measure(asked.rows, asked.folder):
        print(f"| {name} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
