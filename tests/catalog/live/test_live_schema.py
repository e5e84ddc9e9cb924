from pathlib import Path

import apsw

from hawker.catalog.live.live_schema import read_schema


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
