import logging

import pytest

from hawker.api.error_boundary import typed_errors
from hawker.errors import Fault, NotFound


def test_an_error_of_the_family_passes_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    raised = NotFound("app not found")
    with pytest.raises(NotFound) as caught, typed_errors("01H"):
        raise raised
    assert caught.value is raised and not caplog.records


def test_any_other_error_is_logged_once_and_told_by_the_requests_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Fault) as caught, typed_errors("01H"):
        raise ZeroDivisionError("secret")
    assert str(caught.value) == "internal error, request id 01H"
    (record,) = caplog.records
    assert record.getMessage() == "unexpected error" and record.exc_info and record.__dict__["request_id"] == "01H"
