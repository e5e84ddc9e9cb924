"""Each line of the engine says which run, flow, step and resource it is about."""

import logging

import pytest

from hawker.fsm.log import RunLog
from tests.fsm.test_transition import run_at


def test_every_line_carries_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.INFO, "run ended", state="done", step="c")
    (line,) = caplog.records
    fields = ("run", "flow", "step", "resource_kind", "resource_id", "state")
    assert [getattr(line, name) for name in fields] == ["R", "make", "c", "thing", "a/1", "done"]
    assert line.getMessage() == "run ended"


def test_an_error_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.WARNING, "step raised", KeyError("x"))
    assert caplog.records[0].exc_info is not None


def test_a_level_that_is_off_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hawker.fsm"):
        RunLog(logging.getLogger("hawker.fsm")).say(run_at("b"), logging.DEBUG, "step recorded")
    assert caplog.records == []
