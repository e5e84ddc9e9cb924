"""A caller that comes later than those who need it."""

import pytest

from hawker.api.caller import LateCaller
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.clock import SystemClock
from hawker.errors import Unavailable


def test_a_late_caller_is_not_there_before_it_was_met() -> None:
    late, caller = LateCaller(), InProcessCaller(Handlers(), SystemClock(), "ann")
    with pytest.raises(Unavailable, match="does not answer yet"):
        _ = late.caller
    late.meet(caller)
    assert late.caller is caller
