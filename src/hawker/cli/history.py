"""What happened, as text: a run's steps, and a machine's whole history as one table. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hawker.api.contract.machine import MachineEvent
from hawker.api.contract.run import Kept, MachineHistory, Run, RunStep
from hawker.cli import waiting
from hawker.cli.output import fields, local, table, took
from hawker.errors import plain

_RESULT_CHARS = 80
_EPOCH = datetime.fromtimestamp(0, UTC)
_KEPT = {Kept.NODE: "on the node", Kept.ARCHIVE: "in the archive"}

Entry = tuple[datetime, str, str]


def steps(run: Run) -> str:
    """A run's head, and its steps with how long each took."""
    head = fields(
        (
            ("run", run.id),
            ("flow", run.flow),
            ("of", f"{run.resource_kind} {run.resource_id}"),
            ("state", run.state),
            ("began", local(run.created_at)),
            ("took", took(run.ended_at - run.created_at) if run.ended_at else None),
            ("parent", run.parent_id),
            ("error", plain(run.error)),
        )
    )
    headings = ("STEP", "STATE", "ATTEMPTS", "TOOK", "DETAIL")
    return f"{head}\n\n{table(headings, map(_step, run.steps), prose=headings[-1:])}"


def _step(step: RunStep) -> tuple[object, ...]:
    duration = took(step.ended_at - step.started_at) if step.started_at and step.ended_at else None
    return (step.name, step.state, step.attempts, duration, plain(step.error) or _short(step.result))


def _short(result: str | None) -> str | None:
    return result if result is None or len(result) <= _RESULT_CHARS else f"{result[: _RESULT_CHARS - 1]}…"


def told(history: MachineHistory, *, with_steps: bool) -> str:
    """Oldest first, as a story is told."""
    rows = ((local(at), kind, what) for at, kind, what in entries(history, with_steps=with_steps))
    return f"{_head(history)}\n\n{table(('WHEN', 'KIND', 'WHAT'), rows, prose=('WHAT',))}"


def entries(history: MachineHistory, *, with_steps: bool) -> list[Entry]:
    """Everything by time; what happened at once stays in the order version, event, run, step."""
    return sorted([*_entries(history, with_steps)], key=lambda entry: entry[0])


def _entries(history: MachineHistory, with_steps: bool) -> Iterator[Entry]:
    for version in history.versions:
        yield version.created_at, "version", f"{version.version} of {version.image}"
    for event in history.events:
        yield _EPOCH + timedelta(milliseconds=event.timestamp), "event", _event(event)
    for run in history.runs:
        yield run.created_at, "run", _run(run)
    for run in history.runs if with_steps else ():
        for step in run.steps:
            yield step.ended_at or run.created_at, "step", _step_row(run, step)


def _event(event: MachineEvent) -> str:
    by = " by the user" if event.source == "user" else ""
    return _with(f"{event.type}: {event.status}{by}", waiting.reason(event))


def _run(run: Run) -> str:
    duration = f" in {took(run.ended_at - run.created_at)}" if run.ended_at else ""
    return _with(f"{run.flow}: {run.state}{duration}, run {run.id}", plain(run.error))


def _step_row(run: Run, step: RunStep) -> str:
    duration = f" in {took(step.ended_at - step.started_at)}" if step.started_at and step.ended_at else ""
    attempt = f", attempt {step.attempts}" if step.attempts > 1 else ""
    return _with(f"{run.flow}.{step.name}: {step.state}{duration}{attempt}", plain(step.error) or step.result)


def _with(text: str, more: str | None) -> str:
    return f"{text}; {more}" if more else text


def _head(history: MachineHistory) -> str:
    return fields(
        (
            ("machine", history.id),
            ("name", history.name),
            ("app", history.app),
            ("node", history.node),
            ("state", history.state),
            ("image", history.image),
            ("kept", _KEPT[history.kept]),
        )
    )
