"""Words of SQL as SQLite splits them, with their places and how deep in parentheses they stand."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

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


class SqlTokenKind(Enum):
    WORD = "word"
    QUOTED = "quoted"  # an identifier in quotes
    STRING = "string"
    BLOB = "blob"
    NUMBER = "number"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """`text` is as written, except that a quoted identifier has lost its quotes. `depth` counts open parentheses;
    both parentheses of a pair stand outside it."""

    kind: SqlTokenKind
    text: str
    start: int
    end: int
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
