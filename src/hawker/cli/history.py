"""A machine's whole history as text: what it is, then one table of all that happened. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hawker.api.contract.machine import MachineEvent
from hawker.api.contract.run import Kept, MachineHistory, Run, RunStep
from hawker.cli import waiting
from hawker.cli.output import fields, local, table, took
from hawker.errors import plain

Entry = tuple[datetime, str, str]

_KEPT = {Kept.NODE: "on the node", Kept.ARCHIVE: "in the archive"}


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
            yield step.ended_at or run.created_at, "step", _step(run, step)


_EPOCH = datetime.fromtimestamp(0, UTC)


def _event(event: MachineEvent) -> str:
    by = " by the user" if event.source == "user" else ""
    return _with(f"{event.type}: {event.status}{by}", waiting.reason(event))


def _run(run: Run) -> str:
    duration = f" in {took(run.ended_at - run.created_at)}" if run.ended_at else ""
    return _with(f"{run.flow}: {run.state}{duration}, run {run.id}", plain(run.error))


def _step(run: Run, step: RunStep) -> str:
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
