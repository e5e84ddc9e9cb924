"""Point reads of the catalog's file: one connection that cannot write, for reads by key that are short enough for the
event loop, in the daemon or in a process beside it.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import apsw

from hawker.catalog.change import Value
from hawker.catalog.database import check
from hawker.errors import CannotStart, Unavailable

WAIT_MS = 100
STATEMENTS_CACHED = 100
_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


class PointReader:
    """Raises `CannotStart` when there is no catalog that this version can read. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            file = f"file:{quote(str(path))}"
            self._connection = apsw.Connection(file, flags=_FLAGS, statementcachesize=STATEMENTS_CACHED)
            self._connection.set_busy_timeout(WAIT_MS)
            self._connection.pragma("query_only", True)
            check(self._connection, path)
        except apsw.Error as error:
            raise CannotStart(f"cannot read the catalog {path}: {error}; does its node run here?") from error

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        """All of a constant query of ours. Raises `Unavailable` when the file cannot be read now."""
        try:
            found: list[tuple[Value, ...]] = self._connection.execute(query, params).fetchall()
            return found
        except apsw.Error as error:
            raise Unavailable(f"the catalog {self._path} cannot be read now: {error}") from error

    def close(self) -> None:
        self._connection.close()
