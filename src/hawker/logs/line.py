"""From pieces of output and events of a machine to lines. Pure.

A line ends with a newline, at 16 KiB, or when nothing more came for a second; what is not UTF-8 is replaced.
"""

from collections.abc import Iterable, Iterator

import msgspec

from hawker.record.machine import EventRecord
from hawker.runtime.driver import Exit, OutputChunk

MAX_LINE_BYTES = 16 * 1024
LINE_BYTES = 64
"""The bytes that a line costs beside its text, whatever that is: a bare newline is a line, too."""

OPEN_FOR_NS = 1_000_000_000
"""The nanoseconds for which the begin of a line waits for its end."""

APP, RUNNER, PROXY, HEALTH = "app", "runner", "proxy", "health"


class KeptLine(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One line as it is stored. `at` is Unix nanoseconds; `stream` 1, 2, or 0 for the node's own words; `provider` app,
    runner, health, or proxy, whose lines may be of no machine; `release` the number that the machine's metadata names,
    else empty."""

    at: int
    machine: str
    """The machine's id; empty for lines of no machine."""
    stream: int
    text: str
    """The line without its end, in UTF-8; what is none is replaced."""
    container: str = ""
    """The container's name; empty in a machine that has none."""
    level: str = "info"
    """info, warning or error."""
    provider: str = APP
    release: str = ""


class OpenLine(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The begin of a line of one process's stream, and when it came, Unix nanoseconds."""

    stream: int
    """The number of the stream: 1 is stdout, 2 stderr."""
    process: int
    """The number of the process in its machine, from 0."""
    at: int
    """The time of the line in Unix nanoseconds."""
    data: bytes
    """The bytes of the line that came until now."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The place up to which a machine's output was taken: after position `after` of `instance`, and after `event`.
    `closed`: all of the instance was taken, and what its files hold from now on may be another one's."""

    instance: str = ""
    after: int = -1
    event: str = ""
    closed: bool = False
    open: tuple[OpenLine, ...] = ()


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a machine's lines carry: its id, the names of its containers in order, its release."""

    machine: str
    """The id of the machine."""
    containers: tuple[str, ...] = ()
    """Names, by the number of the process; empty in a machine that has none."""
    release: str = ""
    """The number in the machine's metadata; empty where there is none."""


def lines_of(
    facts: MachineFacts, chunks: Iterable[OutputChunk], open_lines: Iterable[OpenLine]
) -> tuple[list[KeptLine], tuple[OpenLine, ...]]:
    """The whole lines in the order in which they ended, and what is not at its end yet."""
    begun = {(each.stream, each.process): each for each in open_lines}
    lines = list[KeptLine]()
    for chunk in chunks:
        key, at = (chunk.stream, chunk.process), int(chunk.at * 1e9)
        before = begun.pop(key, None)
        data = chunk.data if before is None else before.data + chunk.data
        first = at if before is None else before.at
        *whole, rest = data.split(b"\n")
        for place, each in enumerate(whole):
            since = first if place == 0 else at
            if len(each) > MAX_LINE_BYTES:
                lines += _split(facts, chunk.stream, chunk.process, since, each)
            else:
                lines.append(_line(facts, chunk.stream, chunk.process, since, each.removesuffix(b"\r")))
        since = first if not whole else at
        while len(rest) > MAX_LINE_BYTES:
            lines.append(_line(facts, chunk.stream, chunk.process, since, rest[:MAX_LINE_BYTES]))
            rest, since = rest[MAX_LINE_BYTES:], at
        if rest:
            begun[key] = OpenLine(stream=chunk.stream, process=chunk.process, at=since, data=rest)
    return lines, tuple(begun.values())


def closed_lines(facts: MachineFacts, open_lines: Iterable[OpenLine]) -> list[KeptLine]:
    """Lines that get no end any more."""
    return [_line(facts, each.stream, each.process, each.at, each.data) for each in open_lines]


def size_of(lines: Iterable[KeptLine]) -> int:
    """The bytes of lines, with what each line costs beside its text."""
    return sum(len(line.text) + LINE_BYTES for line in lines)


def lost_line(facts: MachineFacts, at: int, pieces: int) -> KeptLine:
    """The line in the place of output that was written over before it could be taken."""
    text = f"{pieces} pieces of output were lost: the machine wrote faster than they could be kept"
    return KeptLine(at=at, machine=facts.machine, stream=0, text=text, level="warning", provider=RUNNER)


def event_line(facts: MachineFacts, event: EventRecord) -> KeptLine:
    """The node's word about a machine. Clients of a release command wait for the words about its end."""
    text, level = _told(event)
    return KeptLine(
        at=int(event.at * 1e9),
        machine=facts.machine,
        stream=0,
        text=text,
        level=level,
        provider=RUNNER,
        release=facts.release,
    )


def _told(event: EventRecord) -> tuple[str, str]:
    detail = event.detail
    if event.type == "exit" and detail is not None and detail.exit is not None:
        again = f"; it is started again ({detail.restart_count} in a row)" if detail.restarting else ""
        return _exit_text(detail.exit) + again, "info" if detail.exit.exit_code == 0 else "error"
    text = f"machine {event.status}" if event.status else event.type
    if event.type not in (event.status, "launch", "start", "stop"):
        text += f" ({event.type})"
    error = "" if detail is None else detail.error
    return (f"{text}: {error}", "error") if error else (text, "info")


def _exit_text(exit: Exit) -> str:
    if exit.signal:
        why = "out of memory" if exit.oom_killed else exit.reason
        return f"Main child ended by signal {exit.signal}" + (f": {why}" if why else "")
    return f"Main child exited normally with code: {exit.exit_code}" + (f": {exit.reason}" if exit.reason else "")


def _split(facts: MachineFacts, stream: int, process: int, at: int, data: bytes) -> Iterator[KeptLine]:
    data = data.removesuffix(b"\r")
    for begin in range(0, max(1, len(data)), MAX_LINE_BYTES):
        yield _line(facts, stream, process, at, data[begin : begin + MAX_LINE_BYTES])


def _line(facts: MachineFacts, stream: int, process: int, at: int, data: bytes) -> KeptLine:
    names = facts.containers
    return KeptLine(
        at=at,
        machine=facts.machine,
        stream=stream,
        text=data.decode("utf-8", "replace"),
        container=names[process] if process < len(names) else "",
        release=facts.release,
    )
