"""Where runs are kept: every bucket and key of the flow engine, and all reading and writing of them.

Unended runs are in one bucket and ended ones in another, so a boot reads only what has work left. A resource's line
holds its unended runs in order, the active one first; delayed runs join it when they are due.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from hawker.errors import Conflict
from hawker.fsm.contract import Resource
from hawker.fsm.run import ENDED, Line, Run, RunState, StepRecord
from hawker.ids import RunId
from hawker.store.contract import Bucket, Reader, Tx

OPEN = Bucket("fsm.open", Run)  # by run id
OPEN_STATES = Bucket(OPEN.name, RunState)  # the same, read in part: for counting thousands
CLOSED = Bucket("fsm.closed", Run)  # by run id
LINES = Bucket("fsm.lines", Line)  # by resource
STEPS = Bucket("fsm.steps", StepRecord)  # by run id and number
BY_RESOURCE = Bucket("fsm.by_resource", bool)  # by resource and run id

LINE_LIMIT = 100
_PAGE = 200


def resource_key(resource: Resource) -> str:
    return f"{resource.kind}\0{resource.id}\0"  # NUL: an id may hold any other separator


# Reading.


def find(reader: Reader, run_id: RunId) -> Run | None:
    return reader.get(OPEN, run_id) or reader.get(CLOSED, run_id)


def open_runs(reader: Reader) -> Iterator[Run]:
    return (run for _, run in reader.scan(OPEN))


def open_states(reader: Reader) -> Iterator[RunState]:
    return (run for _, run in reader.scan(OPEN_STATES))


def active(reader: Reader, resource: Resource) -> Run | None:
    line = reader.get(LINES, resource_key(resource))
    return None if line is None else reader.get(OPEN, line.runs[0])


def has_open_child(reader: Reader, run: Run) -> bool:
    return any(reader.get(OPEN, child) is not None for child in run.children.values())


def history(reader: Reader, run_id: RunId) -> list[StepRecord]:
    return [record for _, record in reader.scan(STEPS, f"{run_id}/")]


def newest(reader: Reader, resource: Resource | None = None, *, opened: bool | None = None) -> Iterator[Run]:
    """Runs from the newest on: of a resource, or all; unended, ended, or both."""
    if resource is not None:
        ids = [key.rpartition("\0")[2] for key, _ in reader.scan(BY_RESOURCE, resource_key(resource), reverse=True)]
        runs = (find(reader, RunId(run_id)) for run_id in ids)
        return (run for run in runs if run is not None and opened in (None, run.state not in ENDED))
    buckets = [bucket for bucket, holds_open in ((OPEN, True), (CLOSED, False)) if opened in (None, holds_open)]
    return merge(*(_paged(reader, each, reverse=True) for each in buckets), key=lambda run: run.id, reverse=True)


def newest_id(reader: Reader) -> RunId:
    return next((run.id for run in newest(reader)), RunId(""))


def ended_before(reader: Reader, kind: str, moment: float, limit: int) -> list[RunId]:
    """Some runs on resources of a kind that had ended by `moment`."""
    ids = (key.rpartition("\0")[2] for key, _ in reader.scan(BY_RESOURCE, f"{kind}\0"))
    runs = (reader.get(CLOSED, run_id) for run_id in ids)
    ended = (run.id for run in runs if run is not None and run.ended_at is not None and run.ended_at <= moment)
    return list(islice(ended, limit))


def _paged(reader: Reader, bucket: Bucket[Run], *, reverse: bool = False) -> Iterator[Run]:
    """All runs of a bucket by id, without having all of them in memory."""
    after: str | None = None
    while page := list(reader.scan(bucket, after=after, limit=_PAGE, reverse=reverse)):
        yield from (run for _, run in page)
        after = page[-1][0]


# Writing.


def add(tx: Tx, run: Run) -> None:
    tx.put(OPEN, run.id, run)
    tx.put(BY_RESOURCE, resource_key(run.resource) + run.id, True)


def save(tx: Tx, run: Run) -> None:
    """Keep an unended run as it is now."""
    assert run.state not in ENDED, run.state
    tx.put(OPEN, run.id, run)


def record(tx: Tx, run: Run, step: StepRecord) -> None:
    tx.put(STEPS, f"{run.id}/{run.records:06d}", step)


def join_line(tx: Tx, run: Run) -> bool:
    """Have the run in its resource's line, at the end unless it is there already; true when it is the first. Raises
    `Conflict` when the line is full."""
    key = resource_key(run.resource)
    line = tx.get(LINES, key)
    waiting = () if line is None else line.runs
    if run.id in waiting:
        return waiting[0] == run.id
    if len(waiting) >= LINE_LIMIT:
        raise Conflict(f"{run.resource.kind} {run.resource.id} has too many operations waiting")
    tx.put(LINES, key, Line(runs=(*waiting, run.id)))
    return not waiting


def take_over(tx: Tx, old: Run, new: Run) -> None:
    """Put `new` into `old`'s place in the line."""
    key = resource_key(old.resource)
    line = tx.get(LINES, key)
    assert line is not None and old.id in line.runs
    tx.put(LINES, key, Line(runs=tuple(new.id if run_id == old.id else run_id for run_id in line.runs)))


def leave_line(tx: Tx, run: Run) -> Run | None:
    """Take the run out of its line. Returns the run whose turn it is now, when that has changed."""
    key = resource_key(run.resource)
    line = tx.get(LINES, key)
    if line is None or run.id not in line.runs:
        return None  # it was delayed, or has been taken over
    rest = tuple(run_id for run_id in line.runs if run_id != run.id)
    if not rest:
        tx.delete(LINES, key)
        return None
    tx.put(LINES, key, Line(runs=rest))
    return tx.get(OPEN, rest[0]) if line.runs[0] == run.id else None


def close(tx: Tx, run: Run) -> None:
    assert run.state in ENDED, run.state
    tx.delete(OPEN, run.id)
    tx.put(CLOSED, run.id, run)


def reopen(tx: Tx, run: Run) -> None:
    tx.delete(CLOSED, run.id)
    tx.put(OPEN, run.id, run)


def trim(tx: Tx, resource: Resource, keep: int) -> None:
    """Drop the oldest ended runs of a resource beyond the newest `keep` runs."""
    prefix = resource_key(resource)
    excess = tx.count(BY_RESOURCE, prefix) - keep
    if excess > 0:
        for key, _ in tx.scan(BY_RESOURCE, prefix, limit=excess):
            drop(tx, RunId(key.rpartition("\0")[2]))


def drop(tx: Tx, run_id: RunId) -> None:
    """Forget an ended run and its history; an unended one is kept."""
    run = tx.get(CLOSED, run_id)
    if run is None:
        return
    tx.delete(CLOSED, run_id)
    tx.delete(BY_RESOURCE, resource_key(run.resource) + run_id)
    for key, _ in tx.scan(STEPS, f"{run_id}/"):
        tx.delete(STEPS, key)


def drop_all(tx: Tx, run_ids: list[RunId]) -> None:
    for run_id in run_ids:
        drop(tx, run_id)
