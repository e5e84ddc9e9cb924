"""The history of one machine as rows that a person can read, and as one SQLite file, for people with the `sqlite3`
shell as much as for Hawker. What the rows are made from and shown as is decided elsewhere. Fields that end in `_json`
hold JSON.

The file is no store: written once, read whole. It comes back from a place that others may write to, so it is opened
read-only and taken for what it is only when its schema is, to the letter, the one below.
"""

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import apsw
import msgspec

from hawker.archive.failure import ArchiveDamaged
from hawker.archive.pack import owned
from hawker.errors import Unavailable
from hawker.value_object import ValueObject

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as it was last. `region` and `node` say where; `version` is the ULID of its config; `private_ip` its
    IPv6 address; `details_json` is what its record has beside the other fields."""

    id: str
    """The id of the machine, which is also in the file's place in the archive."""
    app: str
    """The name of the app that had the machine."""
    name: str
    """The name that its owner gave the machine."""
    node: str
    region: str
    state: str
    """The last state, by the API's word, `destroyed` as a rule."""
    version: str
    image: str
    """The reference as the order gave it."""
    image_digest: str
    """The digest of the manifest that the reference meant for this platform: `sha256:` and 64 hex digits."""
    private_ip: str
    created_at: Moment
    updated_at: Moment
    config_json: str
    """The last config, as the API has it."""
    details_json: str


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a machine's config."""

    version: str
    """A ULID: later versions have higher ones."""
    created_at: Moment
    image: str
    """The reference in this version's config."""
    image_digest: str
    """The digest of the manifest that the image's reference meant when the version was made."""
    config_json: str
    """The config, as the API has it."""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the machine. `request_json` is its `request` as the API has it."""

    id: str
    """Unique within the machine."""
    at: Moment
    type: str
    """The kind of the event: `launch`, `start`, `exit` and so on, as the API has it."""
    status: str
    """The result of the event: `created`, `started`, `renamed` and so on, as the API has it."""
    source: str
    """The one that caused the event, by the API's word: `user` or `flyd`."""
    request_json: str | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `state` is the run's own word; `step` and `attempt`, from 1, are the last it was at; `error` is
    what a person reads about it; `parent` is the run that began it. Times are None for what has not come to pass."""

    id: str
    """Unique within the node; `StepRow.run` names it."""
    flow: str
    """The kind of operation: `create`, `start`, `stop` and so on."""
    state: str
    accepted_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    step: str
    attempt: int
    error: str | None
    parent: str | None
    input_json: str | None
    """The input that the operation was given; None where nothing readable was kept."""
    result_json: str | None
    """The result of the operation; None before its end and for operations without one."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step. `run` is the run's id; `number` counts within the run, from 0; `attempt` within the step,
    from 1."""

    run: str
    number: int
    step: str
    """The name of the step in the flow."""
    attempt: int
    outcome: str
    """The end of the attempt: `done`, `retry`, `failed`, `handed_off`, `undone` or `undo_failed`."""
    started_at: Moment
    ended_at: Moment
    error: str | None
    """The text that a person reads about a failure; None after success."""
    result_json: str | None
    """The result that the attempt left for the steps after it; None where that is nothing."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one machine, everything oldest first."""

    machine: MachineRow
    versions: tuple[VersionRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    steps: tuple[StepRow, ...] = ()


APPLICATION_ID = 0x68776B68  # "hwkh", in the file's header
SCHEMA_VERSION = 1
_PRAGMAS = {
    "journal_mode": "OFF",  # a file that is half written is written again
    "synchronous": "OFF",
    "application_id": APPLICATION_ID,
    "user_version": SCHEMA_VERSION,
}
_STEPS_AT_ONCE, _STEPS = 100_000, 5_000  # of SQLite's virtual machine: far more than any sound file takes

MACHINE = """CREATE TABLE machine (  -- one row: the machine as it was last
  id TEXT PRIMARY KEY,
  app TEXT NOT NULL,
  name TEXT NOT NULL,
  node TEXT NOT NULL,  -- the id of the node that it was on
  region TEXT NOT NULL,
  state TEXT NOT NULL,
  version TEXT NOT NULL,  -- of its config, see versions
  image TEXT NOT NULL,  -- as it was asked for
  image_digest TEXT NOT NULL,
  private_ip TEXT NOT NULL,
  created_at TEXT NOT NULL,  -- UTC, as every time here
  updated_at TEXT NOT NULL,  -- of a destroyed machine: when it was destroyed
  config_json TEXT NOT NULL,  -- with its env, so with its secrets
  details_json TEXT NOT NULL  -- what else its record has
)"""
VERSIONS = """CREATE TABLE versions (  -- of its config
  version TEXT PRIMARY KEY,
  created_at TEXT NOT NULL,
  image TEXT NOT NULL,
  image_digest TEXT NOT NULL,
  config_json TEXT NOT NULL
)"""
EVENTS = """CREATE TABLE events (  -- what happened to it
  id TEXT PRIMARY KEY,
  at TEXT NOT NULL,
  type TEXT NOT NULL,
  status TEXT NOT NULL,
  source TEXT NOT NULL,  -- user, or flyd for the worker
  request_json TEXT  -- the exit with its code, or the error
)"""
RUNS = """CREATE TABLE runs (  -- what the worker did about it
  id TEXT PRIMARY KEY,
  flow TEXT NOT NULL,
  state TEXT NOT NULL,
  accepted_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  step TEXT NOT NULL,  -- the last one
  attempt INTEGER NOT NULL,
  error TEXT,
  parent TEXT,  -- the run that started this one
  input_json TEXT,
  result_json TEXT
)"""
STEPS = """CREATE TABLE steps (  -- every attempt of every step of the runs
  run TEXT NOT NULL,
  number INTEGER NOT NULL,
  step TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT NOT NULL,
  error TEXT,
  result_json TEXT,
  PRIMARY KEY (run, number)
)"""


class ArchiveTable(ValueObject, frozen=True):
    """A table's columns are the fields of its rows' type; `order` is how they are read."""

    name: str
    """The name of the table in the SQLite file."""
    sql: str
    """The whole `CREATE TABLE`: a file with another text here is refused as damaged."""
    row: type[msgspec.Struct]
    order: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.row.__struct_fields__


TABLES = (
    ArchiveTable("machine", MACHINE, MachineRow, "id"),
    ArchiveTable("versions", VERSIONS, VersionRow, "version"),
    ArchiveTable("events", EVENTS, EventRow, "id"),
    ArchiveTable("runs", RUNS, RunRow, "id"),
    ArchiveTable("steps", STEPS, StepRow, "run, number"),
)


def write(history: History, path: Path) -> None:
    """Write `path` anew, readable by its owner only. Its content follows from the history. Raises `Unavailable` when
    the disk does not take it."""
    owned(path).close()
    try:
        with closing(apsw.Connection(str(path))) as connection:
            for pragma, value in _PRAGMAS.items():
                connection.pragma(pragma, value)
            with connection:
                _fill(connection, history)
    except apsw.Error as error:
        raise Unavailable(f"the history of {history.machine.id} cannot be written: {error}") from error


def _fill(connection: apsw.Connection, history: History) -> None:
    for table, rows in zip(TABLES, _rows(history), strict=True):
        connection.execute(table.sql)
        marks = ", ".join("?" * len(table.columns))
        values = (tuple(map(_plain, msgspec.structs.astuple(row))) for row in rows)
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", values)


def read(path: Path) -> History:
    """The history that a file has. Raises `ArchiveDamaged` for anything but a sound file of ours that this version
    knows."""
    try:
        with closing(_opened(path)) as connection:
            _check(connection)
            machine, versions, events, runs, steps = (_table(connection, table) for table in TABLES)
    except (apsw.Error, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ArchiveDamaged(f"it is not a sound history: {error}") from error
    if len(machine) != 1:
        raise ArchiveDamaged(f"it is the history of {len(machine)} machines")
    return History(machine=machine[0], versions=versions, events=events, runs=runs, steps=steps)


def _rows(history: History) -> tuple[tuple[msgspec.Struct, ...], ...]:
    return (history.machine,), history.versions, history.events, history.runs, history.steps


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _opened(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    left = iter(range(_STEPS))
    connection.set_progress_handler(lambda: next(left, None) is None, _STEPS_AT_ONCE)
    return connection


def _check(connection: apsw.Connection) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise ArchiveDamaged("it is not a history of a machine")
    version = connection.pragma("user_version")
    if version > SCHEMA_VERSION:
        raise ArchiveDamaged(
            f"it was written by a newer hawker (history version {version}, known here: {SCHEMA_VERSION})"
        )
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    if sorted(found) != sorted(("table", table.name, table.sql) for table in TABLES):
        raise ArchiveDamaged("its tables are not those of a history")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != ("ok",):
        raise ArchiveDamaged(f"it is not a sound history: {verdict and verdict[0]}")


def _table(connection: apsw.Connection, table: ArchiveTable) -> tuple[Any, ...]:
    query = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {table.order}"
    rows = connection.execute(query)
    return tuple(msgspec.convert(dict(zip(table.columns, row, strict=True)), table.row) for row in rows)
