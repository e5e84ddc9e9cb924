"""What nobody foresaw ends nothing but the block that raised it; a death of the daemon is no error."""

import logging

import pytest

from hawker.containment import LOGGER, contained
from hawker.sim.node.crash_points import Death

pytestmark = pytest.mark.anyio


def test_an_error_is_logged_with_its_traceback_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    with contained("a trial", machine="m1"):
        raise UnicodeError("what a tenant made")
    (record,) = caplog.records
    assert (record.name, record.levelno) == (LOGGER, logging.ERROR)
    assert record.exc_info is not None and record.__dict__["machine"] == "m1"


def test_an_error_that_is_none_of_its_business_passes(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError), contained("a trial", (KeyError, OSError)):
        raise KeyError
    with contained("a trial", (KeyError, OSError)):
        raise IndexError
    assert len(caplog.records) == 1


@pytest.mark.parametrize("death", [Death, KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_passes(death: type[BaseException]) -> None:
    with pytest.raises(death), contained("a trial"):
        raise death
    with pytest.raises(BaseExceptionGroup), contained("a trial"):
        raise BaseExceptionGroup("", [ValueError(), death()])
