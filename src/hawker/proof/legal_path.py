"""Whether a machine's events can have happened in this order.

An instance that started ends at most once, and before the next one starts; an exit without a start is of an instance
that never ran, or of one that was overtaken by the order to end it; nothing follows the end of the machine. Only what
runs is suspended, and only what is suspended is resumed. Ids say the order; times may go back, as clocks do.
"""

from collections.abc import Iterator, Sequence

from hawker.record.machine import EventRecord

FIRST = ("launch", "created")
LAST = frozenset({("destroy", "destroyed"), ("launch", "launch_failed")})
KNOWN = LAST | {
    FIRST,
    ("start", "starting"),
    ("start", "started"),
    ("start", "failed"),
    ("exit", "stopped"),
    ("container", "blocked"),
    ("container", "exited"),
    ("standby", "beside"),
    ("rename", "renamed"),
    ("volume", "attached"),
    ("volume", "detached"),
    ("volume", "copied"),
    ("volume", "lent"),
    ("volume", "returned"),
    ("stop", "stopping"),
    ("stop", "stopped"),
    ("suspend", "suspending"),
    ("suspend", "suspended"),
    ("suspend", "failed"),
    ("restart", "restarting"),
    ("restart", "failed"),
    ("update", "updating"),
    ("update", "failed"),
    ("destroy", "destroying"),
    *(
        ("migrate", status)
        for status in ("preparing", "copying", "stopped", "started", "done", "aborted", "reclaiming")
    ),
}


def illegal_steps(events: Sequence[EventRecord], *, whole: bool = True) -> Iterator[str]:
    """What cannot be, oldest first. `whole` when the beginning of the history is still there."""
    runs: bool | None = False if whole else None  # None: begun before the first event that is left
    held = runs
    previous: EventRecord | None = None
    for event in events:
        step = (event.type, event.status)
        if step not in KNOWN:
            yield f"{_name(event)} is no event of a machine"
        if previous is None and whole and step != FIRST:
            yield f"begins with {_name(event)}"
        if previous is not None and event.id <= previous.id:
            yield f"{_name(event)} stands after {_name(previous)}"
        if previous is not None and (previous.type, previous.status) in LAST:
            yield f"{_name(event)} after the machine's end"
        if is_resumption(event):
            if held is False:
                yield f"{_name(event)} of what was not suspended"
            runs, held = True, False
        elif step == ("suspend", "suspended"):
            if runs is False or held:
                yield f"{_name(event)} of what did not run"
            runs = held = True
        elif step == ("start", "started"):
            if runs:
                yield f"{_name(event)} while an instance ran"
            runs, held = True, False
        elif event.type == "exit":
            if runs is False and not _needs_no_start(event):
                yield f"{_name(event)} while no instance ran"
            runs = held = False
        previous = event


def is_resumption(event: EventRecord) -> bool:
    """A start of the instance that there was."""
    return event.detail is not None and event.detail.resumed


def _needs_no_start(event: EventRecord) -> bool:
    detail = event.detail
    if detail is None:
        return False
    never_ran = detail.exit is not None and bool(detail.exit.reason or detail.exit.fault)
    return detail.requested_stop or never_ran


def _name(event: EventRecord) -> str:
    return f"{event.type}/{event.status} ({event.id})"
