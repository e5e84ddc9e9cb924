"""Which tables replicate, and the rules for the files that declare them. SQLite itself reads the files, in a database
in memory; what it then knows of each table is checked here. No live database is changed in this file.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Scope, Value
from hawker.errors import BadRequest

_TOKEN = re.compile(
    r"""\s+|--[^\n]*|/\*.*?(?:\*/|\Z)
    |(?P<token>[xX]'[^']*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]
    |(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[\w$]+|->>|->|\|\||<=|>=|<>|!=|==|<<|>>|.)""",
    re.VERBOSE | re.DOTALL,
)
_CONSTRAINTS = frozenset({"constraint", "primary", "unique", "check", "foreign"})


# The parts of a CREATE TABLE as its author wrote them: SQLite tells what a column is, not how it was declared, and
# a column that is added later must be declared the same way. Only texts that SQLite has already accepted come here.


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """`columns` are their declarations by name, in order; `constraints` are the table's own, `options` what follows.
    Texts have one space between tokens; those of the last two are normal (`normal`)."""

    columns: Mapping[str, str]
    constraints: tuple[str, ...]
    options: str


def tokens(text: str) -> list[str]:
    """The tokens of `text`, without blanks and comments."""
    return [match["token"] for match in _TOKEN.finditer(text) if match["token"]]


@lru_cache(maxsize=5000)
def normal(text: str) -> str:
    """A text that is the same for texts that mean the same: case and blanks do not count outside of quotes."""
    return " ".join(token if token[-1] in "'\"`]" else token.casefold() for token in tokens(text))


def unquoted(name: str) -> str:
    if len(name) > 1 and name[0] in "'\"`[":
        return name[1:-1].replace(name[0] * 2, name[0])
    return name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=500)
def parse(create_table: str) -> Definition:
    every = tokens(create_table)
    first = every.index("(")
    parts, end = _parts(every, first)
    columns, constraints = {}, []
    for part in parts:
        text = " ".join(part)
        if part[0].casefold() in _CONSTRAINTS:
            constraints.append(normal(text))
        else:
            columns[unquoted(part[0])] = text
    return Definition(
        columns=columns, constraints=tuple(sorted(constraints)), options=normal(" ".join(every[end + 1 :]))
    )


def _parts(every: list[str], first: int) -> tuple[list[list[str]], int]:
    """What stands between the commas of the outermost parentheses, and where these end."""
    parts: list[list[str]] = [[]]
    for index, token, depth in _nested(every, first):
        if depth == 0:
            return [part for part in parts if part], index
        if token == "," and depth == 1:
            parts.append([])
        elif index > first:
            parts[-1].append(token)
    return [part for part in parts if part], len(every)


def _nested(every: list[str], first: int) -> Iterator[tuple[int, str, int]]:
    depth = 0
    for index in range(first, len(every)):
        depth += {"(": 1, ")": -1}.get(every[index], 0)
        yield index, every[index], depth


FILE_BYTES = 1024 * 1024
TABLES_LIMIT = 500
COLUMNS_LIMIT = 200

_SCOPE = re.compile(r"^[ \t]*--[ \t]*scope:[ \t]*(\w+)[ \t]*$", re.MULTILINE)
_LITERAL = re.compile(r"[+-]?\s*[\d.]+(e[+-]?\d+)?|'([^']|'')*'|x'[0-9a-f]*'|null|true|false", re.IGNORECASE)


class SchemaRefused(BadRequest):
    """A schema file that cannot be taken; nothing was changed."""

    prefix = ""


class Replicated(msgspec.Struct, frozen=True, kw_only=True):
    """A table of which rows replicate. `stored` are all columns but the computed ones, `columns` those without the
    key's; `places` says where the parts of the key are among the stored. `defaults` has what an omitted column gets,
    if `fixed` says that it is the same at every time."""

    name: str
    """The name of the table in small letters."""
    scope: Scope
    key: tuple[str, ...]
    """Names of columns, in the key's order; the first one is the owner's."""
    places: tuple[int, ...]
    stored: tuple[str, ...]
    columns: tuple[str, ...]
    defaults: tuple[Value, ...]
    fixed: tuple[bool, ...]
    sql: str
    """The statement that makes the table."""


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations of files: tables and indexes by name, these with their SQL, and the names of indexes to drop."""

    tables: Mapping[str, Replicated]
    indexes: Mapping[str, tuple[str, str]]  # name: (table, SQL)
    dropped: frozenset[str]
    """Names that an earlier schema had and this one has not."""


def shipped() -> str:
    """The tables that Hawker itself needs."""
    return (files("hawker.catalog") / "tables.sql").read_text()


@lru_cache(maxsize=16)
def read(texts: tuple[str, ...]) -> Schema:
    """The schema that the texts of files declare. Raises `SchemaRefused` with the table and the rule."""
    connection = apsw.Connection(":memory:")
    try:
        scopes: dict[str, Scope] = {}
        dropped: set[str] = set()
        for text in texts:
            _File(connection, scopes, dropped).run(text)
        indexes = _indexes(connection)
        if both := dropped & set(indexes):
            raise SchemaRefused(f"index {min(both)} is both created and dropped")
        if len(scopes) > TABLES_LIMIT:
            raise SchemaRefused(f"{len(scopes)} tables, {TABLES_LIMIT} at most")
        tables = {name: _checked(connection, describe(connection, name, scope)) for name, scope in scopes.items()}
        return Schema(tables=tables, indexes=indexes, dropped=frozenset(dropped))
    finally:
        connection.close()


@lru_cache(maxsize=TABLES_LIMIT)
def described(sql: str, scope: Scope) -> Replicated:
    """The description of one table from its CREATE TABLE alone."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(sql)
        return describe(
            connection, connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").get, scope
        )
    finally:
        connection.close()


def fingerprint(tables: Mapping[str, Replicated]) -> str:
    """16 hex characters, the same on nodes whose tables are the same."""
    lines = []
    for table in sorted(tables.values(), key=lambda table: table.name):
        definition = parse(table.sql)
        columns = sorted(normal(text) for text in definition.columns.values())
        lines.append([table.name, table.scope.value, columns, definition.constraints, definition.options])
    return hashlib.sha256(msgspec.json.encode(lines)).hexdigest()[:16]


class _File:
    """Runs one file's statements, each looked at before it runs."""

    def __init__(self, connection: apsw.Connection, scopes: dict[str, Scope], dropped: set[str]) -> None:
        self._connection, self._scopes, self._dropped = connection, scopes, dropped
        self._scope = Scope.REGION

    def run(self, text: str) -> None:
        if len(text.encode()) > FILE_BYTES:
            raise SchemaRefused(f"a schema file may have {FILE_BYTES} bytes")
        cursor = self._connection.cursor()
        cursor.exec_trace = self._look
        try:
            cursor.execute(text).fetchall()
        except apsw.Error as error:
            raise SchemaRefused(str(error)) from error

    def _look(self, cursor: apsw.Cursor, text: str, _: object) -> bool:
        for name in _SCOPE.findall(text):
            self._scope = _scope(name)
        if cursor.has_vdbe:
            self._statement(tokens(text))
        return True

    def _statement(self, words: list[str]) -> None:
        begin = " ".join(words[:3]).casefold()
        if begin.startswith("create table"):
            name, rest = _named(words[2:])
            if rest[:1] != ["("]:
                raise SchemaRefused(f"{name}: CREATE TABLE AS SELECT is not supported")
            self._scopes.setdefault(name, self._scope)
        elif begin.startswith("create unique index"):
            raise SchemaRefused(f"{_named(words[3:])[0]}: unique indexes are not supported")
        elif begin == "drop index if":
            name = _named(words[2:])[0]
            if name in _indexes(self._connection):
                raise SchemaRefused(f"index {name} is both created and dropped")
            self._dropped.add(name)
        elif not begin.startswith("create index"):
            raise SchemaRefused(f"unsupported command: {' '.join(words[:3])}")


def _scope(name: str) -> Scope:
    try:
        return Scope(name)
    except ValueError as error:
        raise SchemaRefused(f"scope: {name} is neither region nor global") from error


def _named(words: list[str]) -> tuple[str, list[str]]:
    """The name that a statement is about, and what comes after it."""
    rest = [*words]
    while rest and rest[0].casefold() in ("if", "not", "exists"):
        rest.pop(0)
    if rest[1:2] == ["."]:
        rest = rest[2:]
    return unquoted(rest[0]), rest[1:]


def _indexes(connection: apsw.Connection) -> dict[str, tuple[str, str]]:
    rows = connection.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    return {name: (table, sql) for name, table, sql in rows}


def describe(connection: apsw.Connection, name: str, scope: Scope) -> Replicated:
    text = "SELECT name, pk, hidden, dflt_value FROM pragma_table_xinfo(?)"
    columns: list[Any] = connection.execute(text, (name,)).fetchall()
    key = tuple(column for column, pk, _, _ in sorted(columns, key=lambda column: column[1]) if pk)
    stored = [(column, default) for column, pk, hidden, default in columns if not pk and not hidden]
    names = tuple(column for column, _ in stored)
    order = tuple(column for column, _, hidden, _ in columns if not hidden)
    defaults = _defaults(connection, name, key, names)
    literal = (default is None or _LITERAL.fullmatch(default.strip()) is not None for _, default in stored)
    return Replicated(
        name=name,
        scope=scope,
        key=key,
        places=tuple(map(order.index, key)),
        stored=order,
        columns=names,
        defaults=defaults or (None,) * len(names),
        fixed=tuple(literal) if defaults else (False,) * len(names),
        sql=connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).get,
    )


def _defaults(connection: apsw.Connection, table: str, key: Sequence[str], columns: Sequence[str]) -> tuple[Value, ...]:
    """As a row has them, which the column's type may have changed; none when such a row cannot be."""
    if not key or not columns:
        return ()
    names, values = ", ".join(map(quoted, key)), ", ".join("0" for _ in key)
    wanted = ", ".join(map(quoted, columns))
    try:
        connection.execute("PRAGMA ignore_check_constraints = 1; SAVEPOINT defaults").fetchall()
        row = connection.execute(
            f"INSERT INTO {quoted(table)} ({names}) VALUES ({values}) RETURNING {wanted}"
        ).fetchall()
        return tuple(row[0])
    except apsw.Error:
        return ()
    finally:
        connection.execute("ROLLBACK TO defaults; RELEASE defaults")


def _checked(connection: apsw.Connection, table: Replicated) -> Replicated:
    for fault in _faults(connection, table):
        raise SchemaRefused(f"{table.name}: {fault}")
    return table


def _faults(connection: apsw.Connection, table: Replicated) -> Iterator[str]:
    name = table.name
    if name.startswith("__") or name.endswith("__m"):
        yield "names that begin with __ or end with __m are the catalog's own"
    if "autoincrement" in (word.casefold() for word in tokens(table.sql)):
        yield "AUTOINCREMENT is not supported"
    text = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)'
    columns: list[Any] = connection.execute(text, (name,)).fetchall()
    yield from _column_faults(columns, table)
    if connection.execute("SELECT count(*) FROM pragma_foreign_key_list(?)", (name,)).get:
        yield "foreign keys are not supported"
    indexes = connection.execute("SELECT name, origin FROM pragma_index_list(?)", (name,)).fetchall()
    if any(origin == "u" for _, origin in indexes):
        yield "has unique indices besides the primary key"
    for index, origin in indexes:
        collations = connection.execute("SELECT coll FROM pragma_index_xinfo(?) WHERE key", (index,)).fetchall()
        if origin == "pk" and {coll for (coll,) in collations} - {"BINARY"}:
            yield "the primary key may have no collation but BINARY"


def _column_faults(columns: list[tuple[str, str, int, str | None, int, int]], table: Replicated) -> Iterator[str]:
    if not table.key:
        yield "a table needs a primary key"
    if len(columns) > COLUMNS_LIMIT:
        yield f"{len(columns)} columns, {COLUMNS_LIMIT} at most"
    for name, kind, not_null, default, pk, hidden in columns:
        if name.startswith("__"):
            yield f"column {name}: names that begin with __ are the catalog's own"
        if pk and not not_null:
            yield f"primary key is nullable: declare {name} NOT NULL"
        if pk == 1 and kind.casefold() != "text":
            yield f"the primary key must begin with the owner, a column of type TEXT; {name} is {kind or 'of no type'}"
        if pk and hidden:
            yield "the primary key may have no expression"
        if not pk and not hidden and not_null and default is None:
            yield f"column {name} is NOT NULL and has no DEFAULT"
