"""One machine as text: the lines about it, and its whole history, one table of all that happened. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from hawker.api.contract.machine import ContainerStatus, Machine, MachineEvent
from hawker.api.contract.run import Kept, MachineHistory, Run, RunStep
from hawker.cli import waiting
from hawker.cli.listing import image_name
from hawker.cli.machines import Owned
from hawker.cli.output import fields, local, moment, table, took
from hawker.config import MachineConfig
from hawker.config.effective import Persist, guest, persistence, restart_policy
from hawker.config.schedule import moment_after
from hawker.errors import plain
from hawker.machine import OFF, Policy

_EVENTS_SHOWN = 8
_RESULT_CHARS = 80


def started(app: str, machine: Machine, published: str = "") -> str:
    """What a person wants to know who just ordered it. `published` is where its ports are reached."""
    return fields(
        (
            ("machine", machine.id),
            ("name", machine.name),
            ("app", app),
            ("state", machine.state),
            ("address", machine.private_ip),
            ("published", published or None),
        )
    )


def status(owned: Owned, published: str = "") -> str:
    machine = owned.machine
    parts = [_about(owned, published)]
    if machine.containers:
        parts.append(table(("CONTAINER", "STATE", "RESTARTS", "LAST EXIT"), map(_container, machine.containers)))
    if machine.checks:
        checks = ((check.name, check.status, local(check.updated_at), check.output) for check in machine.checks)
        parts.append(table(("CHECK", "STATUS", "UPDATED", "OUTPUT"), checks, prose=("OUTPUT",)))
    parts.append(events(machine.events[:_EVENTS_SHOWN]))
    return "\n\n".join(parts)


def _container(found: ContainerStatus) -> tuple[object, ...]:
    if found.exit_code is None:
        return (found.name, found.state, found.restarts, None)
    when = f" at {local(found.exited_at)}" if found.exited_at is not None else ""
    return (
        found.name,
        found.state,
        found.restarts,
        f"{'out of memory' if found.oom_killed else found.exit_code}{when}",
    )


def _about(owned: Owned, published: str) -> str:
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
            ("host", machine.host if machine.host_status == "ok" else f"{machine.host} away"),
            ("image", image_name(machine.image_ref)),
            ("digest", machine.image_ref.digest),
            ("command", _command(machine.config)),
            ("address", machine.private_ip),
            ("published", published),
            ("size", size and f"{size.cpus} {size.cpu_kind} cpu{'s' * (size.cpus != 1)}, {size.memory_mb} MiB"),
            ("restart", _restart(machine.config)),
            ("schedule", _schedule(machine)),
            ("root", _root(machine.config)),
            ("volumes", _volumes(machine.config)),
            ("version", machine.version),
            ("created", local(machine.created_at)),
            ("updated", local(machine.updated_at)),
            ("cordoned", "yes" if machine.cordoned else None),
            ("lease", lease and f"held by {lease.owner} until {moment(lease.expires_at * 1000)}"),
        )
    )


def _command(config: MachineConfig | None) -> str | None:
    """What the config says in place of the image's own."""
    init = config.init if config is not None else None
    words = (*(init.entrypoint or ()), *(init.cmd or init.exec or ())) if init is not None else ()
    return shlex.join(words) or None


def _restart(config: MachineConfig | None) -> str | None:
    """What becomes of it when it ends by itself."""
    if config is None or config.containers:
        return None
    policy, retries = restart_policy(config)
    return {
        Policy.NO: "no: it stays stopped when it ends",
        Policy.ALWAYS: "always",
        Policy.ON_FAILURE: f"on failure, {retries} times in a row; it stays stopped after exit 0",
    }.get(policy, policy.value)


def _schedule(machine: Machine) -> str | None:
    schedule = machine.config.schedule if machine.config is not None else None
    if schedule is None:
        return None
    if machine.state not in OFF:
        return f"{schedule}, runs now"
    since = max(machine.created_at, machine.updated_at).timestamp()
    due = moment_after(machine.created_at.timestamp(), schedule, since)
    return f"{schedule}, next at {local(datetime.fromtimestamp(due).astimezone())}"


def _root(config: MachineConfig | None) -> str | None:
    """Whether what it writes outlives it: the question after a first restart."""
    if config is None or config.containers:
        return None
    kept = persistence(config) is not Persist.NEVER
    return "kept over restarts" if kept else "fresh at each start; volumes keep their files"


def _volumes(config: MachineConfig | None) -> str:
    mounts = config.mounts if config is not None else None
    return ", ".join(f"{each.volume or each.name} at {each.path}" for each in mounts or ())


def events(shown: Sequence[MachineEvent]) -> str:
    """Newest first, as they are told."""
    rows = ((moment(event.timestamp), event.type, event.status, _by(event), waiting.reason(event)) for event in shown)
    return table(("WHEN", "EVENT", "STATUS", "BY", "DETAIL"), rows, prose=("DETAIL",))


def _by(event: MachineEvent) -> str:
    """Who did it: the API says `flyd` of what the node did by itself."""
    return "node" if event.source == "flyd" else event.source


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
            yield step.ended_at or run.created_at, "step", _step_row(run, step)


_EPOCH = datetime.fromtimestamp(0, UTC)


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
