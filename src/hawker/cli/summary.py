"""Machines as text: one line of a list, the lines about one. Pure."""

from collections.abc import Sequence
from datetime import datetime

from hawker.api.contract.machine import ImageRef, Machine, MachineEvent
from hawker.api.contract.run import Run, RunStep
from hawker.cli import waiting
from hawker.cli.machines import Owned
from hawker.cli.output import age, fields, local, moment, table, took
from hawker.config.effective import guest

_HEADINGS = ("ID", "NAME", "APP", "STATE", "REGION", "IMAGE", "ADDRESS", "AGE")
_EVENTS_SHOWN = 8
_RESULT_CHARS = 80


def listing(machines: Sequence[Owned], now: datetime) -> str:
    return table(_HEADINGS, (_row(owned, now) for owned in machines))


def _row(owned: Owned, now: datetime) -> tuple[object, ...]:
    machine = owned.machine
    return (
        machine.id,
        machine.name,
        owned.app,
        machine.state,
        machine.region,
        image_name(machine.image_ref),
        machine.private_ip,
        age(machine.created_at, now),
    )


def image_name(image: ImageRef) -> str:
    """As short as it can be said: the tag, or what there is of a digest."""
    name = f"{image.registry}/{image.repository}" if image.registry else image.repository
    return f"{name}:{image.tag}" if image.tag else f"{name}@{image.digest[:19]}"


def started(app: str, machine: Machine) -> str:
    """What a person wants to know who just ordered it."""
    return fields(
        (
            ("machine", machine.id),
            ("name", machine.name),
            ("app", app),
            ("state", machine.state),
            ("address", machine.private_ip),
        )
    )


def status(owned: Owned) -> str:
    machine = owned.machine
    parts = [_about(owned)]
    if machine.containers:
        parts.append(table(("CONTAINER", "STATE"), ((each.name, each.state) for each in machine.containers)))
    if machine.checks:
        checks = ((check.name, check.status, local(check.updated_at), check.output) for check in machine.checks)
        parts.append(table(("CHECK", "STATUS", "UPDATED", "OUTPUT"), checks))
    parts.append(events(machine.events[:_EVENTS_SHOWN]))
    return "\n\n".join(parts)


def _about(owned: Owned) -> str:
    machine = owned.machine
    size = guest(machine.config) if machine.config else None
    lease = machine.lease
    return fields(
        (
            ("id", machine.id),
            ("name", machine.name),
            ("app", owned.app),
            ("state", machine.state),
            ("region", machine.region),
            ("image", image_name(machine.image_ref)),
            ("digest", machine.image_ref.digest),
            ("address", machine.private_ip),
            ("size", size and f"{size.cpus} {size.cpu_kind} cpu{'s' * (size.cpus != 1)}, {size.memory_mb} MiB"),
            ("version", machine.version),
            ("created", local(machine.created_at)),
            ("updated", local(machine.updated_at)),
            ("cordoned", "yes" if machine.cordoned else None),
            ("lease", lease and f"held by {lease.owner} until {moment(lease.expires_at * 1000)}"),
        )
    )


def events(shown: Sequence[MachineEvent]) -> str:
    """Newest first, as they are told."""
    rows = ((moment(event.timestamp), event.type, event.status, event.source, waiting.reason(event)) for event in shown)
    return table(("WHEN", "EVENT", "STATUS", "SOURCE", "DETAIL"), rows)


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
            ("error", run.error),
        )
    )
    headings = ("STEP", "STATE", "ATTEMPTS", "TOOK", "DETAIL")
    return f"{head}\n\n{table(headings, map(_step, run.steps))}"


def _step(step: RunStep) -> tuple[object, ...]:
    duration = took(step.ended_at - step.started_at) if step.started_at and step.ended_at else None
    return (step.name, step.state, step.attempts, duration, step.error or _short(step.result))


def _short(result: str | None) -> str | None:
    return result if result is None or len(result) <= _RESULT_CHARS else f"{result[: _RESULT_CHARS - 1]}…"
