"""How far a guest's own account of its machine is believed: nothing in it has yet to happen, or is of a process that
the machine does not have. What has been it may still lie about, to its own loss. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from hawker.runtime.driver import Exit, ProcessState
from hawker.runtime.pilot.journal import Story

_T = TypeVar("_T")


def believed(story: Story, processes: int, now: float) -> Story:
    """`processes` is how many the machine has, `now` the host's time in Unix seconds."""
    return replace(
        story,
        started_at=_past(story.started_at, now),
        ready_at=_past(story.ready_at, now),
        first_exit=_exit(story.first_exit, processes, now),
        final_exit=_exit(story.final_exit, processes, now),
        exits={index: _known(exit, now) for index, exit in _real(story.exits, processes)},
        runs={index: _state(state, now) for index, state in _real(story.runs, processes)},
    )


def _real(told: Mapping[int, _T], processes: int) -> list[tuple[int, _T]]:
    return [(index, what) for index, what in told.items() if index < processes]


def _exit(exit: Exit | None, processes: int, now: float) -> Exit | None:
    if exit is None:
        return None
    return msgspec.structs.replace(_known(exit, now), process=exit.process if exit.process < processes else 0)


def _known(exit: Exit, now: float) -> Exit:
    return msgspec.structs.replace(exit, exited_at=min(exit.exited_at, now))


def _state(state: ProcessState, now: float) -> ProcessState:
    last_exit = state.last_exit and _known(state.last_exit, now)
    return msgspec.structs.replace(state, started_at=_past(state.started_at, now), last_exit=last_exit)


def _past(at: float | None, now: float) -> float | None:
    return None if at is None else min(at, now)
