import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from hawker.catalog.change import Value
from hawker.catalog.contract import RowChange, Statement
from hawker.catalog.live.evaluation import Evaluation, plan_of, read_schema
from hawker.catalog.live.result_cache import ResultCache, ResultSnapshot
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.clock import SystemClock
from hawker.errors import BadRequest

_TABLES = """
CREATE TABLE hosts (node TEXT NOT NULL, region TEXT NOT NULL DEFAULT '', up INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (node)) WITHOUT ROWID;
CREATE TABLE machines (node TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL DEFAULT '', size INTEGER DEFAULT 0,
    PRIMARY KEY (node, id)) WITHOUT ROWID;
CREATE TABLE checks (node TEXT NOT NULL, machine TEXT NOT NULL, name TEXT NOT NULL, status TEXT DEFAULT '',
    PRIMARY KEY (node, machine, name)) WITHOUT ROWID;
CREATE TABLE __c_own (a INTEGER PRIMARY KEY);
CREATE VIEW running AS SELECT * FROM machines WHERE state = 'on';
"""
TREES = [
    "SELECT id, state FROM machines",
    "SELECT state, size FROM machines",
    "SELECT * FROM machines WHERE state = 'on' AND size > 1 ORDER BY size",
    "SELECT m.id, h.region FROM machines m JOIN hosts h ON h.node = m.node WHERE h.up = 1",
    "SELECT m.id, c.name, c.status FROM machines AS m LEFT JOIN checks c ON c.node = m.node AND c.machine = m.id",
    "SELECT h.node, m.id, c.name FROM hosts h LEFT JOIN machines m USING (node) "
    "LEFT JOIN checks c ON c.machine = m.id AND c.status = 'bad' AND h.up = 1 WHERE h.region <> 'x'",
    "SELECT a.id, b.id FROM machines a, machines b WHERE a.node = b.node AND a.id < b.id AND a.state = b.state",
    "SELECT h.node, m.state FROM checks c CROSS JOIN hosts h LEFT OUTER JOIN machines m ON m.size = h.up "
    "WHERE c.status = 'bad' AND c.node = h.node",
    "SELECT upper(id) || '-' || coalesce(size, 0) FROM machines WHERE state IN ('on', 'off') AND node = 'b'",
]
WHOLES = [
    "SELECT state, count(*), sum(size) FROM machines GROUP BY state",
    "SELECT count(*) FROM machines WHERE state = 'on'",
    "SELECT DISTINCT state FROM machines",
    "SELECT id FROM machines ORDER BY size, id LIMIT 3",
    "SELECT h.node FROM hosts h LEFT JOIN machines m ON m.node = h.node WHERE m.id IS NULL",
    "SELECT h.node FROM hosts h LEFT JOIN machines m ON m.node = h.node WHERE coalesce(m.size, 0) <> 3",
    "SELECT node FROM hosts WHERE EXISTS (SELECT 1 FROM machines m WHERE m.node = hosts.node)",
    "SELECT node FROM hosts UNION ALL SELECT node FROM machines",
    "SELECT node FROM running",
    "WITH big AS (SELECT * FROM machines WHERE size > 1) SELECT id FROM big",
    "SELECT m.id FROM hosts h LEFT JOIN machines m ON m.node = h.node JOIN checks c ON c.machine = m.id",
    "SELECT m.id, c.name FROM checks c FULL JOIN machines m ON m.id = c.machine",
]


@dataclass
class Bench:
    """A catalog that is written by hand, and a live query of it."""

    writer: apsw.Connection
    asked: Evaluation
    kept: ResultCache

    def query(self) -> Counter[tuple[Value, ...]]:
        rows: list[Any] = self.writer.execute(self.asked.plan.sql).fetchall()
        return Counter(rows)


class Maker:
    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "catalog.db"
        self.writer = apsw.Connection(str(self.file))
        self.writer.execute("PRAGMA journal_mode = WAL").fetchall()
        self.writer.execute(_TABLES)
        self.pool = ReadPool(lambda: ReadConnection(self.file, SystemClock()))
        self.made: list[ResultCache] = []

    def plan(self, sql: str, *params: Value) -> Any:
        with self.pool.one() as guarded:
            return plan_of(guarded, Statement(query=sql, params=params), read_schema(self.file))

    def bench(self, sql: str) -> Bench:
        plan = self.plan(sql)
        kept = ResultCache(self.folder / f"{len(self.made)}.db", plan.sources)
        self.made.append(kept)
        asked = Evaluation(plan, kept, self.pool, SystemClock())
        asked.first()
        return Bench(self.writer, asked, kept)

    def close(self) -> None:
        for kept in self.made:
            kept.close()
        self.pool.close()
        self.writer.close()


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Maker]:
    made = Maker(tmp_path)
    yield made
    made.close()


_KEYS = {"hosts": ("node",), "machines": ("node", "id"), "checks": ("node", "machine", "name")}
_VALUES = {"node": "abc", "id": "12345", "machine": "12345", "name": "pq"}


def _commit(writer: apsw.Connection, chance: random.Random) -> dict[str, set[tuple[Value, ...]]]:
    """One random transaction; the keys that it touched."""
    touched: dict[str, set[tuple[Value, ...]]] = {}
    with writer:
        for _ in range(chance.randint(1, 4)):
            table = chance.choice(list(_KEYS))
            key = tuple(chance.choice(_VALUES[name]) for name in _KEYS[table])
            touched.setdefault(table, set()).add(key)
            marks = ", ".join("?" * len(key))
            if chance.random() < 0.4:
                names = ", ".join(_KEYS[table])
                writer.execute(f"DELETE FROM {table} WHERE ({names}) = ({marks})", key)
                continue
            values: tuple[Value, ...] = {
                "hosts": (chance.choice("xyz"), chance.randint(0, 1)),
                "machines": (chance.choice(["on", "off"]), chance.choice([None, 0, 1, 2, 3])),
                "checks": (chance.choice(["good", "bad"]),),
            }[table]
            writer.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks}{', ?' * len(values)})", key + values)
    return touched


def _replayed(rows: dict[int, tuple[Value, ...]], changes: list[RowChange]) -> None:
    for change in changes:
        assert (change.row_id in rows) == (change.kind != "insert")
        if change.kind == "delete":
            assert rows.pop(change.row_id) == change.row
        else:
            rows[change.row_id] = change.row


@pytest.mark.parametrize("sql", TREES + WHOLES)
def test_the_kept_answer_and_its_replayed_changes_equal_the_query(maker: Maker, sql: str) -> None:
    bench = maker.bench(sql)
    assert (bench.asked.plan.tree is not None) == (sql in TREES)
    first = ResultSnapshot(bench.kept.file)
    rows = dict(first.rows(10))
    first.close()
    chance = random.Random(sql)
    number, used = 0, len(rows)
    for turn in range(150):
        changed = _commit(maker.writer, chance)
        changes = bench.asked.again(changed if bench.asked.plan.tree else None)
        for change in changes:
            number += 1
            assert change.number == number
            if change.kind == "insert":
                assert change.row_id > used, "a row's id is never used again"
                used = change.row_id
        _replayed(rows, changes)
        assert Counter(rows.values()) == bench.query(), turn
    snapshot = ResultSnapshot(bench.kept.file)
    assert dict(snapshot.rows(1000)) == rows
    snapshot.close()


def test_writes_between_two_evaluations_show_as_one_change(maker: Maker) -> None:
    bench = maker.bench("SELECT id, state FROM machines")
    maker.writer.execute("INSERT INTO machines (node, id, state) VALUES ('a', '1', 'on')")
    maker.writer.execute("UPDATE machines SET state = 'off'")
    changes = bench.asked.again({"machines": {("a", "1")}})
    assert [(change.kind, change.row) for change in changes] == [("insert", ("1", "off"))]
    assert bench.asked.again({"machines": {("a", "1")}}) == []


def test_a_count_changes_rather_than_going_and_coming(maker: Maker) -> None:
    bench = maker.bench("SELECT count(*) FROM machines")
    maker.writer.execute("INSERT INTO machines (node, id) VALUES ('a', '1')")
    assert [(change.kind, change.row) for change in bench.asked.again(None)] == [("update", (1,))]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT * FROM __c_own", "table `__c_own` not found in schema"),
        ("SELECT name FROM sqlite_schema", "not found in schema"),
        ("SELECT 1", "at least one table"),
        ("DELETE FROM machines", "statement is not readonly"),
        ("SELECT * FROM nowhere", "no such table"),
        ("SELECT * FROM machines; SELECT 1", "one statement at a time"),
    ],
)
def test_statement_that_cannot_be_live_is_refused(maker: Maker, sql: str, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        maker.plan(sql)


def test_parameters_are_written_into_the_query(maker: Maker) -> None:
    plan = maker.plan("SELECT id FROM machines WHERE state = ? AND size = ?", "o'n", 3)
    assert plan.sql == "SELECT id FROM machines WHERE state = 'o''n' AND size = 3"
    assert plan.tree is not None


def test_asking_for_roots_uses_the_primary_key(maker: Maker) -> None:
    plan = maker.plan(TREES[4])
    steps: list[Any] = maker.writer.execute(
        "EXPLAIN QUERY PLAN " + plan.tree.roots_of(1, 4), ("a", "1", "p") * 4
    ).fetchall()
    assert not [step for *_, step in steps if str(step).startswith("SCAN") and "checks" in str(step)]
    steps = maker.writer.execute("EXPLAIN QUERY PLAN " + plan.tree.of_roots(4), ("a", "1") * 4).fetchall()
    assert any("SEARCH machines USING PRIMARY KEY (node=? AND id=?)" in str(step) for *_, step in steps)


def test_tables_with_their_keys_and_what_gathers(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    db = apsw.Connection(str(file))
    db.execute(
        "CREATE TABLE Machines (id TEXT NOT NULL, node TEXT NOT NULL, twice AS (id || id), PRIMARY KEY (node, id));"
        "CREATE TABLE machines__m (a INTEGER PRIMARY KEY); CREATE TABLE __c_log (a INTEGER PRIMARY KEY);"
        "CREATE TABLE keyless (a); CREATE VIEW Shown AS SELECT id FROM Machines"
    )
    db.close()
    schema = read_schema(file)
    assert list(schema.tables) == ["machines"]
    table = schema.table("MACHINES")
    assert table is not None
    assert (table.name, table.columns, table.key) == ("Machines", ("id", "node", "twice"), ("node", "id"))
    assert schema.table("nowhere") is None
    assert schema.views == {"shown"}
    assert {"count", "sum", "group_concat", "max"} <= schema.aggregates
    assert "abs" not in schema.aggregates
