"""The plain shape of a query: a tree of inner and left joins of tables, whose answer can be mended key by key.

Every row of such an answer stands for one row of each table, or for none of a left joined one; the keys of those are
the row's identity. What changed is found by the first table's keys, its *roots*: the query for some roots only is the
query itself, its first table narrowed. Whatever is not surely of this shape is None here, and is asked again as a
whole when something changed; so is a condition over the null side of a left join, since a row that it hides leaves no
trace of the root that its end would bring back.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from hawker.value_object import ValueObject

_PATTERN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<blob>[xX]'[0-9A-Fa-f]*')
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
  | (?P<number>(?:0[xX][0-9A-Fa-f]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?))
  | (?P<word>[A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*)
  | (?P<mark>->>|->|\|\||<=|>=|==|<>|!=|<<|>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)


# Words of SQL as SQLite splits them, with their places and how deep in parentheses they stand.


class SqlTokenKind(Enum):
    WORD = "word"
    QUOTED = "quoted"  # an identifier in quotes
    STRING = "string"
    BLOB = "blob"
    NUMBER = "number"
    MARK = "mark"


class SqlToken(ValueObject, frozen=True):
    """`text` is as written, except that a quoted identifier has lost its quotes. `depth` counts open parentheses;
    both parentheses of a pair stand outside it."""

    kind: SqlTokenKind
    text: str
    start: int
    """The place where the token begins in the text, in characters from 0."""
    end: int
    """The place where the next token may begin."""
    depth: int

    @property
    def upper(self) -> str:
        """A word in capitals; empty for all that cannot be a keyword."""
        return self.text.upper() if self.kind is SqlTokenKind.WORD else ""

    @property
    def names(self) -> bool:
        return self.kind in (SqlTokenKind.WORD, SqlTokenKind.QUOTED)


def tokens_of(sql: str) -> list[SqlToken]:
    return list(_split(sql))


def _split(sql: str) -> Iterator[SqlToken]:
    depth = 0
    for match in _PATTERN.finditer(sql):
        kind, text = match.lastgroup, match[0]
        if kind is None or kind == "space":
            continue
        depth -= text == ")"
        unquoted = _unquoted(text) if kind == "quoted" else text
        yield SqlToken(SqlTokenKind(kind), unquoted, match.start(), match.end(), depth)
        depth += text == "("


def _unquoted(text: str) -> str:
    quote, inner = text[0], text[1:-1]
    return inner if quote == "[" else inner.replace(quote * 2, quote)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_BEYOND = frozenset(
    """DISTINCT GROUP HAVING LIMIT OFFSET UNION EXCEPT INTERSECT WITH VALUES WINDOW OVER FILTER RIGHT FULL NATURAL
    INDEXED RETURNING ROWID OID _ROWID_""".split()
)
_ENDS = frozenset({"WHERE", "ORDER"})
_JOINS = frozenset({"JOIN", "LEFT", "INNER", "CROSS"})
_NO_ALIAS = _ENDS | _JOINS | {"ON", "USING"}


class TableInfo(ValueObject, frozen=True):
    """A table of the schema: its name, its columns, and those of its primary key in order."""

    name: str
    """The name of the table as it was declared."""
    columns: tuple[str, ...]
    """The names of the columns, in the order of the table."""
    key: tuple[str, ...]
    """Names of columns; its first one is the owner's."""


class JoinSource(ValueObject, frozen=True):
    """One table of the FROM clause. `start` to `end` is its name and alias in the text, `join` where the words that
    join it begin, `until` where its condition ends."""

    table: TableInfo
    alias: str
    """The name by which the query names the table; the table's own name where it gives none."""
    start: int
    end: int
    join: int
    until: int
    left: bool
    """The table is joined by LEFT JOIN: rows of the others stay without it."""

    def keys(self) -> str:
        return ", ".join(f"{quoted(self.alias)}.{quoted(column)}" for column in self.table.key)

    def narrowed(self, count: int) -> str:
        """The table with only the rows of `count` keys."""
        columns = ", ".join(map(quoted, self.table.key))
        one = f"({', '.join('?' * len(self.table.key))})"
        rows = ", ".join([one] * count)
        return f"(SELECT * FROM {quoted(self.table.name)} WHERE ({columns}) IN (VALUES {rows})) AS {quoted(self.alias)}"


class JoinTree(ValueObject, frozen=True):
    """`sql` without its end mark. `list_end` is where the result columns end, `body_end` where ORDER BY begins."""

    sql: str
    list_end: int
    body_end: int
    sources: tuple[JoinSource, ...]

    def whole(self) -> str:
        """The query, and after its columns the keys of every source."""
        return f"{self.sql[: self.list_end]}, {self._keys()} {self.sql[self.list_end :]}"

    def of_roots(self, count: int) -> str:
        """The statement of the tree for `count` roots."""
        root = self.sources[0]
        head = f"{self.sql[: self.list_end]}, {self._keys()} {self.sql[self.list_end : root.start]}"
        return f"{head}{root.narrowed(count)}{self.sql[root.end :]}"

    def roots_of(self, index: int, count: int) -> str:
        """The statement for the roots that now meet one of so many keys of another source."""
        root, child = self.sources[0], self.sources[index]
        before, after = self.sql[root.start : child.join], self.sql[child.end : self.body_end]
        return f"SELECT DISTINCT {root.keys()} FROM {before} JOIN {child.narrowed(count)}{after}"

    def _keys(self) -> str:
        return ", ".join(source.keys() for source in self.sources)


def tree_of(sql: str, schema: Mapping[str, TableInfo], aggregates: frozenset[str]) -> JoinTree | None:
    """`schema` by names in small letters; `aggregates` are the names of functions that take many rows."""
    tokens = tokens_of(sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens or tokens[0].upper != "SELECT" or _is_beyond(tokens, aggregates):
        return None
    at = next((i for i, token in enumerate(tokens) if token.depth == 0 and token.upper == "FROM"), None)
    if at is None:
        return None
    sources, after = _Sources(tokens, schema).read(at + 1)
    ordered = next((i for i, token in enumerate(tokens) if token.depth == 0 and token.upper == "ORDER"), len(tokens))
    if not sources or _hides_null_sides(tokens[after:ordered], tokens, sources):
        return None
    if len({source.alias.lower() for source in sources}) < len(sources):
        return None
    return JoinTree(sql[: tokens[-1].end], tokens[at - 1].end, tokens[ordered - 1].end, tuple(sources))


def _is_beyond(tokens: Sequence[SqlToken], aggregates: frozenset[str]) -> bool:
    if any(token.upper in _BEYOND for token in tokens) or sum(token.upper == "SELECT" for token in tokens) > 1:
        return True
    pairs = pairwise(tokens)
    return any(token.names and token.text.lower() in aggregates and after.text == "(" for token, after in pairs)


class _Sources:
    """Reads a FROM clause; an empty list stands for one that is not plain."""

    def __init__(self, tokens: Sequence[SqlToken], schema: Mapping[str, TableInfo]) -> None:
        self._tokens, self._schema = tokens, schema
        self._at = 0

    def read(self, at: int) -> tuple[list[JoinSource], int]:
        self._at = at
        found: list[JoinSource] = []
        join, left = _start(self._tokens, at), False
        while True:
            source = self._source(join, left)
            if source is None:
                return [], self._at
            found.append(source)
            token = self._now
            if token is None or token.upper in _ENDS:
                return found, self._at
            join = token.start
            joined = self._joiner()
            if joined is None:
                return [], self._at
            left = joined

    @property
    def _now(self) -> SqlToken | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _word(self) -> str:
        token = self._now
        return token.upper or token.text if token else ""

    def _name(self) -> SqlToken | None:
        token = self._now
        if token is None or not token.names or token.depth:
            return None
        self._at += 1
        return token

    def _source(self, join: int, left: bool) -> JoinSource | None:
        name = first = self._name()
        if self._word() == "." and name and name.text.lower() == "main":
            self._at += 1
            name = self._name()
        table = self._schema.get(name.text.lower()) if name else None
        if table is None or name is None or first is None:
            return None
        alias = self._alias(name)
        if alias is None:
            return None
        end = self._tokens[self._at - 1].end
        until = self._condition(end)
        return JoinSource(table, alias.text, first.start, end, join, until, left)

    def _alias(self, name: SqlToken) -> SqlToken | None:
        if self._word() == "AS":
            self._at += 1
            return self._name()
        token = self._now
        is_alias = token is not None and token.names and token.upper not in _NO_ALIAS
        return self._name() if is_alias else name

    def _condition(self, end: int) -> int:
        """Past ON or USING and what follows, if there is one."""
        if self._word() not in ("ON", "USING"):
            return end
        while (token := self._now) is not None:
            if token.depth == 0 and (token.upper in _ENDS | _JOINS or token.text == ","):
                break
            self._at += 1
        return self._tokens[self._at - 1].end

    def _joiner(self) -> bool | None:
        """Past the words that join; whether it is a left join."""
        word = self._word()
        self._at += 1
        if word in (",", "JOIN"):
            return False
        if word == "LEFT" and self._word() == "OUTER":
            self._at += 1
        if word not in _JOINS or self._word() != "JOIN":
            return None
        self._at += 1
        return word == "LEFT"


def _start(tokens: Sequence[SqlToken], at: int) -> int:
    return tokens[at].start if at < len(tokens) else 0


def _hides_null_sides(
    conditions: Sequence[SqlToken], tokens: Sequence[SqlToken], sources: Sequence[JoinSource]
) -> bool:
    """Whether WHERE, or the condition of an inner join, speaks of a left joined table."""
    nullable = [source for source in sources if source.left]
    owners = {source.alias.lower() for source in nullable}
    columns = {column.lower() for source in nullable for column in source.table.columns}
    inner = [source for source in sources if not source.left]
    asked = list(conditions)
    for source in inner:
        asked += [token for token in tokens if source.end <= token.start < source.until]
    return any(_speaks_of(around, owners, columns) for around in _triples(asked))


def _triples(tokens: Sequence[SqlToken]) -> Iterator[tuple[str, str, SqlToken, str]]:
    """Each token with the texts of the two before it and the one after."""
    texts = ["", "", *(token.text for token in tokens), ""]
    return ((texts[i], texts[i + 1], token, texts[i + 3]) for i, token in enumerate(tokens))


def _speaks_of(around: tuple[str, str, SqlToken, str], owners: set[str], columns: set[str]) -> bool:
    """`inner.column` does not, whatever the column is called. A string beside a dot is a name to SQLite."""
    owner, dot, token, after = around
    if after == ".":
        return token.text.strip("'").lower() in owners
    if not token.names and not (token.kind is SqlTokenKind.STRING and dot == "."):
        return False
    if dot == ".":
        return owner.strip("'").lower() in owners
    return token.text.lower() in columns
