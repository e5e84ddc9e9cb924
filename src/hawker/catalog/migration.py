"""Takes the live database from the tables it has to those that the files declare: adds, never drops or changes. A
table that no file declares any more is kept. Adding a column changes no row, so it replicates nothing.
"""

from collections.abc import Mapping
from typing import Any

import apsw

from hawker.catalog.change import Scope
from hawker.catalog.schema import Replicated, Schema, SchemaRefused, described, normal, parse, quoted

_LIVE = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
_INDEXES = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


def evolve(connection: apsw.Connection, schema: Schema, *, kept: frozenset[str] = frozenset()) -> None:
    """Inside the caller's transaction. Raises `SchemaRefused`; the caller rolls back. Tables in `kept` may have more
    columns than declared: a newer version of this program added them."""
    try:
        for table in schema.tables.values():
            live = connection.execute(_LIVE, (table.name,)).get
            if live is None:
                _create(connection, table)
            else:
                _extend(connection, table, live, lenient=table.name in kept)
        _reindex(connection, schema)
    except apsw.Error as error:
        raise SchemaRefused(str(error)) from error


def tables_of(connection: apsw.Connection) -> Mapping[str, Replicated]:
    """What the live database replicates, declared or not."""
    rows: list[Any] = connection.execute(
        "SELECT name, scope, sql FROM __c_table JOIN sqlite_schema USING (name)"
    ).fetchall()
    return {name: described(sql, Scope(scope)) for name, scope, sql in rows}


def _create(connection: apsw.Connection, table: Replicated) -> None:
    connection.execute(table.sql)
    connection.execute("INSERT INTO __c_table VALUES (?, ?)", (table.name, table.scope.value))
    for statement in side_tables(connection, table):
        connection.execute(statement)


def side_tables(connection: apsw.Connection, table: Replicated) -> list[str]:
    """What is known of each row, live or deleted: its owner's last version, when it was deleted here (Unix seconds, 0
    for a live one), and in which run of its stream it was last confirmed (see origins.py)."""
    rows: list[Any] = connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (table.name,)).fetchall()
    types = dict(rows)
    side, keys = quoted(f"{table.name}__m"), ", ".join(map(quoted, table.key))
    typed = ", ".join(f"{quoted(name)} {types[name]} NOT NULL" for name in table.key)
    own = "__ver INTEGER NOT NULL, __del INTEGER NOT NULL, __run INTEGER NOT NULL"
    by_version, by_death = quoted(f"{table.name}__v"), quoted(f"{table.name}__d")
    return [
        f"CREATE TABLE {side} ({typed}, {own}, PRIMARY KEY ({keys})) WITHOUT ROWID",
        f"CREATE INDEX {by_version} ON {side} ({quoted(table.key[0])}, __ver, __del)",
        f"CREATE INDEX {by_death} ON {side} (__del) WHERE __del > 0",
    ]


def _extend(connection: apsw.Connection, table: Replicated, live: str, *, lenient: bool) -> None:
    before, after = parse(live), parse(table.sql)
    if not lenient and (gone := set(before.columns) - set(after.columns)):
        raise SchemaRefused(f"{table.name}: won't drop column {min(gone)} without the destructive flag")
    if described(live, table.scope).key != table.key:
        raise SchemaRefused(f"{table.name}: won't change the primary key without the destructive flag")
    for name, text in before.columns.items():
        if name in after.columns and normal(text) != normal(after.columns[name]):
            raise SchemaRefused(f"{table.name}: won't change column {name} without the destructive flag")
    if (before.constraints, before.options) != (after.constraints, after.options):
        raise SchemaRefused(f"{table.name}: won't change the table's constraints without the destructive flag")
    scope = connection.execute("SELECT scope FROM __c_table WHERE name = ?", (table.name,)).get
    if scope != table.scope.value:
        raise SchemaRefused(f"{table.name}: won't change its scope from {scope} to {table.scope.value}")
    for name, text in after.columns.items():
        if name not in before.columns:
            connection.execute(f"ALTER TABLE {quoted(table.name)} ADD COLUMN {text}")


def _reindex(connection: apsw.Connection, schema: Schema) -> None:
    live = {name: (table, sql) for name, table, sql in connection.execute(_INDEXES)}
    for name, (table, sql) in live.items():
        wanted = schema.indexes.get(name)
        declared = table in schema.tables and (wanted is None or normal(wanted[1]) != normal(sql))
        if declared or (name in schema.dropped and not table.endswith("__m")):
            connection.execute(f"DROP INDEX {quoted(name)}")
    for name, (table, sql) in schema.indexes.items():
        if name in live and live[name][0] != table:
            raise SchemaRefused(f"index {name} is already that of table {live[name][0]}")
        if name not in live or normal(live[name][1]) != normal(sql):
            connection.execute(sql)
