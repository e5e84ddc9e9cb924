"""One machine as text. Pure."""

import shlex
from collections.abc import Sequence
from datetime import datetime

from hawker.api.contract.machine import ContainerStatus, Machine, MachineEvent
from hawker.cli import waiting
from hawker.cli.listing import image_name
from hawker.cli.machines import Owned
from hawker.cli.output import fields, local, moment, table
from hawker.config import MachineConfig
from hawker.config.effective import Persist, guest, persistence, restart_policy
from hawker.config.schedule import moment_after
from hawker.machine import OFF, Policy

_EVENTS_SHOWN = 8


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
