import click
import msgspec

from hawker.api.contract.run import Kept
from hawker.cli.history import entries, steps, told
from tests.cli.fake_node import RUN
from tests.cli.histories import history


def test_a_runs_steps_say_how_long_they_took() -> None:
    found = [line.split() for line in click.unstyle(steps(RUN)).splitlines()]
    assert ["took", "1000", "ms"] in found or ["took", "1.00", "s"] in found
    assert ["rootfs", "done", "1", "37.1", "ms", "-"] in found


def test_a_long_result_of_a_step_is_cut() -> None:
    long = msgspec.structs.replace(RUN, steps=(msgspec.structs.replace(RUN.steps[0], result="x" * 500, error=None),))
    assert max(map(len, click.unstyle(steps(long)).splitlines())) < 200


def test_all_that_happened_is_told_by_its_time() -> None:
    found = entries(history(), with_steps=False)
    assert [kind for _, kind, _ in found] == ["version", "event", "run", "event"]
    assert [what for _, _, what in found] == [
        "01V1 of registry.local/web:3",
        "launch: created by the user",
        "create: done in 1.00 s, run 01RUN",
        "exit: stopped; it exited with status 7",
    ]


def test_steps_are_told_when_they_are_wanted_each_attempt() -> None:
    found = [what for _, kind, what in entries(history(), with_steps=True) if kind == "step"]
    assert found == ["create.rootfs: retry in 0 ms; no space left", "create.rootfs: done in 37.1 ms, attempt 2"]


def test_the_head_says_whose_history_it_is_and_where_it_is_kept() -> None:
    text = told(history(), with_steps=False)
    assert "name     web" in text and "kept     in the archive" in text
    assert "kept     on the node" in told(history(kept=Kept.NODE), with_steps=False)


def test_a_failed_run_says_why() -> None:
    run = msgspec.structs.replace(history().runs[0], ended_at=None, error="no room")
    assert "create: done, run 01RUN; no room" in told(history(runs=(run,)), with_steps=False)


def test_events_of_others_move_no_cursor() -> None:
    assert "\x1b[2J" not in told(history(name="\x1b[2Jweb"), with_steps=True)
