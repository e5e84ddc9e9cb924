"""TOML with the place of every key: values by `tomllib`, places by a scan of our own, since no library kept for that
gives both (tomlkit has neither line nor column). The scan goes first, so that `tomllib`, which is slow with long dotted
keys and recursive in lists, never meets a text that nests too deeply."""

import re
import tomllib
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'", re.DOTALL
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n\r]+")
_GAP = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_WHERE = re.compile(r" \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")


class BadToml(ValueError):
    """`at` is an offset in the text."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.text, self.at = text, at


def read(text: str, max_depth: int) -> tuple[dict[str, Any], dict[Path, int]]:
    """The values, and the offset of each key and list item. Raises `BadToml`."""
    text = text.replace("\r\n", " \n")  # as long as before, so offsets stay
    scan = _Scan(text, max_depth)
    stopped: BadToml | None = None
    try:
        scan.document()
    except BadToml as error:
        if scan.too_deep:
            raise
        stopped = error
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _placed(str(error), text) from None
    except ValueError as error:  # a number of thousands of digits, or no such date
        raise BadToml(str(error), 0) from None
    if stopped is not None:
        raise stopped
    return value, scan.places


def _placed(said: str, text: str) -> BadToml:
    where = _WHERE.search(said)
    if where is None:
        return BadToml(said, 0)
    said = said[: where.start()]
    if where[1] is None:
        return BadToml(said, len(text))
    before = text.split("\n", int(where[1]) - 1)[: int(where[1]) - 1]
    return BadToml(said, sum(len(line) + 1 for line in before) + int(where[2]) - 1)


class _Scan:
    """Goes over a text once. It takes what TOML takes and more: what is wrong in it, `tomllib` says."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text = text
        self.max_depth = max_depth
        self.at = 0
        self.places: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # of tables in each array of tables
        self.too_deep = False

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> Path:
        begin, many = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        parts = self._key(0)
        self._take("]]" if many else "]")
        path: Path = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            self.places.setdefault(path, begin)
            if many and index == len(parts) - 1:
                self.counts[path] = self.counts.get(path, 0) + 1
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
                self.places.setdefault(path, begin)
        return path

    def _pair(self, table: Path) -> None:
        begin = self.at
        parts = self._key(len(table))
        for end in range(1, len(parts) + 1):
            self.places.setdefault((*table, *parts[:end]), begin)
        self._take("=")
        self._value((*table, *parts))

    def _key(self, depth: int) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_GAP)
            parts.append(self._part())
            self._deep(depth + len(parts))
            self._skip(_GAP)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def _part(self) -> str:
        quoted = _STRING.match(self.text, self.at)
        if quoted is None:
            return self._skip(_BARE_KEY)
        self.at = quoted.end()
        try:
            return str(tomllib.loads(f"key = {quoted[0]}")["key"])
        except tomllib.TOMLDecodeError as error:
            raise BadToml(str(error), quoted.start()) from None

    def _value(self, path: Path) -> None:
        self._deep(len(path))
        self._skip(_GAP)
        if self.text.startswith("[", self.at):
            self._list(path)
        elif self.text.startswith("{", self.at):
            self._inline(path)
        elif (string := _STRING.match(self.text, self.at)) is not None:
            self.at = string.end()
        else:
            self._skip(_BARE_VALUE)

    def _list(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self.text.startswith("]", self.at):
                self.at += 1
                return
            self.places[(*path, index)] = self.at
            self._value((*path, index))
            self._skip(_BLANK)
            if not self.text.startswith("]", self.at):
                self._take(",")
            index += 1

    def _inline(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_BLANK)
            if self.text.startswith("}", self.at):
                self.at += 1
                return
            self._pair(path)
            self._skip(_BLANK)
            if not self.text.startswith("}", self.at):
                self._take(",")

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise BadToml("something is missing here", self.at)
        self.at = found.end()
        return found[0]

    def _take(self, sign: str) -> None:
        if not self.text.startswith(sign, self.at):
            raise BadToml(f"{sign} is missing here", self.at)
        self.at += len(sign)

    def _deep(self, depth: int) -> None:
        if depth > self.max_depth:
            self.too_deep = True
            raise BadToml(f"it is nested more than {self.max_depth} deep", self.at)
