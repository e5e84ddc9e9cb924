"""The parts of a CREATE TABLE as its author wrote them: SQLite tells what a column is, not how it was declared, and a
column that is added later must be declared the same way. Only texts that SQLite has already accepted come here.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

_TOKEN = re.compile(
    r"""\s+|--[^\n]*|/\*.*?(?:\*/|\Z)
    |(?P<token>[xX]'[^']*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]
    |(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[\w$]+|->>|->|\|\||<=|>=|<>|!=|==|<<|>>|.)""",
    re.VERBOSE | re.DOTALL,
)
_CONSTRAINTS = frozenset({"constraint", "primary", "unique", "check", "foreign"})


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """`columns` are their declarations by name, in order; `constraints` are the table's own, `options` what follows.
    Texts have one space between tokens; those of the last two are normal (`normal`)."""

    columns: Mapping[str, str]
    constraints: tuple[str, ...]
    options: str


def tokens(text: str) -> list[str]:
    """Without blanks and comments."""
    return [match["token"] for match in _TOKEN.finditer(text) if match["token"]]


@lru_cache(maxsize=5000)
def normal(text: str) -> str:
    """The same for texts that mean the same: case and blanks do not count outside of quotes."""
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
