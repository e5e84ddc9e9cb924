"""Where in a machine a call means: which of its containers, by name."""

from hawker.errors import BadRequest
from hawker.record.machine import MachineRecord


def names_of(record: MachineRecord | None) -> tuple[str, ...]:
    """The containers of what runs, in their order. During an update that is still the previous version."""
    if record is None:
        return ()
    config = record.config if record.previous is None else record.previous.config
    return tuple(each.name or "" for each in config.containers or ())


def place_of(record: MachineRecord, container: str | None, *, in_machine: bool) -> int:
    """The place of the container, the first one's when none is named. Raises `BadRequest` when there is no such one."""
    names = names_of(record)
    if in_machine and container:
        raise BadRequest("container and machine exclude each other")
    if in_machine and names:
        raise BadRequest(f"this machine has no files of its own to run; name a container: {', '.join(names)}")
    if not container:
        return 0
    if container not in names:
        there = f"it has {', '.join(names)}" if names else "it has none"
        raise BadRequest(f"there is no container {container!r:.80} in this machine: {there}")
    return names.index(container)
