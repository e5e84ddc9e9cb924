"""Reading a machine's events: did it run, how did it end, and why not. Pure."""

from itertools import takewhile

from hawker.api.contract.machine import ExitEvent, Machine, MachineEvent
from hawker.machine import GONE, OFF


def last_exit(machine: Machine) -> ExitEvent | None:
    return next((found for event in machine.events if (found := exit_of(event)) is not None), None)


def exit_of(event: MachineEvent) -> ExitEvent | None:
    return event.request.exit_event if event.request is not None else None


def since_order(machine: Machine) -> tuple[MachineEvent, ...]:
    """What happened by itself since the user's last word, newest first: not what an earlier instance went through,
    nor how that one was ended."""
    news = takewhile(lambda event: event.source != "user", machine.events)
    return tuple(event for event in news if (found := exit_of(event)) is None or not found.requested_stop)


def never_executed(machine: Machine) -> str | None:
    """Why the command was never executed, if that is so."""
    endings = (exit_of(event) for event in since_order(machine))
    return next((found.reason for found in endings if found is not None and found.reason), None)


def ended_well(machine: Machine) -> bool:
    """It is off, because its command came to a good end."""
    endings = (exit_of(event) for event in since_order(machine))
    found = next((found for found in endings if found is not None), None)
    return machine.state in GONE | OFF and found is not None and found.exit_code == 0


def failure(machine: Machine) -> str:
    """Why a machine is not running, in one line, by the newest event that says so."""
    for event in since_order(machine):
        text = reason(event)
        if text is not None:
            return text
    return f"it is {machine.state}, and its events do not say why"


def reason(event: MachineEvent) -> str | None:
    """What an event says about why; None when it says nothing."""
    found = exit_of(event)
    if found is not None:
        return "; ".join(text for text in (ending(found), event.error) if text)
    return event.error or None


def ending(found: ExitEvent) -> str:
    if found.reason:
        return f"its command could not be executed: {found.reason}"
    if found.fault:
        return f"a platform fault ended it: {found.fault}"
    if found.oom_killed:
        return "it ran out of memory"
    if found.guest_signal > 0:
        return f"it was ended by signal {found.guest_signal}"
    return f"it exited with status {found.exit_code}"
