"""Whether a machine's events can have happened in this order.

An instance that started ends at most once, and before the next one starts; an exit without a start is of an instance
that never ran, or of one that was overtaken by the order to end it; nothing follows the end of the machine. Ids say the
order; times may go back, as clocks do.
"""

from collections.abc import Iterator, Sequence

from hawker.worker.records import EventRecord

FIRST = ("launch", "created")
LAST = frozenset({("destroy", "destroyed"), ("launch", "launch_failed")})
KNOWN = LAST | {
    FIRST,
    ("start", "starting"),
    ("start", "started"),
    ("start", "failed"),
    ("exit", "stopped"),
    ("stop", "stopping"),
    ("stop", "stopped"),
    ("restart", "restarting"),
    ("restart", "failed"),
    ("update", "updating"),
    ("update", "failed"),
    ("destroy", "destroying"),
}


def illegal_steps(events: Sequence[EventRecord], *, whole: bool = True) -> Iterator[str]:
    """What cannot be, oldest first. `whole` when the beginning of the history is still there."""
    runs: bool | None = False if whole else None  # None: begun before the first event that is left
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
        if step == ("start", "started"):
            if runs:
                yield f"{_name(event)} while an instance ran"
            runs = True
        elif event.type == "exit":
            if runs is False and not _needs_no_start(event):
                yield f"{_name(event)} while no instance ran"
            runs = False
        previous = event


def _needs_no_start(event: EventRecord) -> bool:
    detail = event.detail
    return detail is not None and (detail.requested_stop or (detail.exit is not None and bool(detail.exit.reason)))


def _name(event: EventRecord) -> str:
    return f"{event.type}/{event.status} ({event.id})"
