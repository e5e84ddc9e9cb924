"""Histories that can be, and each way in which one cannot."""

import re
from pathlib import Path

import pytest

import hawker
from hawker.ids import EventId
from hawker.proof.legal_path import KNOWN, illegal_steps
from hawker.record.machine import Detail, EventRecord
from hawker.runtime.driver import Exit

EXIT = Exit(exit_code=0, exited_at=1.0)


SUSPENDED = ("launch/created", "start/started", "suspend/suspending", "suspend/suspended")
RESUMED = "start/started+"


def detail_of(step: str) -> Detail | None:
    """`!` marks an exit that was asked for, `?` one of an instance that is not known to have run, `+` a start that is
    no new instance."""
    if step.endswith("+"):
        return Detail(resumed=True)
    if step.endswith("?"):
        return Detail(exit=Exit(exit_code=137, exited_at=1.0, fault="kernel panic"))
    return Detail(exit=EXIT, requested_stop=step.endswith("!")) if step.startswith("exit") else None


def history(*steps: str, at: float = 0.0) -> list[EventRecord]:
    return [
        EventRecord(
            id=EventId(f"{number:02d}"),
            type=step.split("/")[0],
            status=step.split("/")[1].rstrip("!?+"),
            source="user",
            at=at - number,  # clocks go back
            detail=detail_of(step),
        )
        for number, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    "steps",
    [
        ("launch/created", "start/started", "exit/stopped", "start/started", "stop/stopping", "exit/stopped!"),
        ("launch/created", "launch/launch_failed"),
        ("launch/created", "stop/stopped", "destroy/destroying", "destroy/destroyed"),
        ("launch/created", "stop/stopping", "exit/stopped!"),
        ("launch/created", "exit/stopped?", "start/started"),
        (*SUSPENDED, "start/starting", RESUMED, "suspend/suspending", "suspend/suspended", "exit/stopped"),
        (*SUSPENDED, "exit/stopped", "start/started", "suspend/suspending", "suspend/failed", "exit/stopped"),
    ],
)
def test_legal_paths_of_states(steps: tuple[str, ...]) -> None:
    assert list(illegal_steps(history(*steps))) == []


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (("start/started",), "begins with"),
        (("launch/created", "start/started", "start/started"), "while an instance ran"),
        (("launch/created", "exit/stopped"), "while no instance ran"),
        (("launch/created", "destroy/destroyed", "start/starting"), "after the machine's end"),
        (("launch/created", "launch/lost"), "is no event"),
        (("launch/created", "suspend/suspended"), "of what did not run"),
        ((*SUSPENDED, "suspend/suspended"), "of what did not run"),
        ((*SUSPENDED, "start/started"), "while an instance ran"),
        ((*SUSPENDED, RESUMED, RESUMED), "of what was not suspended"),
        ((*SUSPENDED, "exit/stopped", RESUMED), "of what was not suspended"),
    ],
)
def test_illegal_paths_of_states(steps: tuple[str, ...], told: str) -> None:
    found = list(illegal_steps(history(*steps)))
    assert len(found) == 1 and told in found[0]


def test_events_out_of_order_are_told() -> None:
    assert "stands after" in next(illegal_steps(history("launch/created", "start/starting")[::-1], whole=False))


def test_the_beginning_may_be_missing() -> None:
    assert list(illegal_steps(history("exit/stopped", "start/started"), whole=False)) == []


def test_every_event_that_the_code_writes_is_known() -> None:
    texts = (file.read_text() for file in Path(hawker.__file__).parent.rglob("*.py"))
    written = {found for text in texts for found in re.findall(r'Happened\("(\w+)", "(\w+)"', text)}
    assert len(written) > 10 and written <= KNOWN
