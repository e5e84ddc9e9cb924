"""One change of several things: what is said of each, and how it ends."""

import json

import pytest

from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.output import Form
from hawker.cli.several import change_each
from hawker.errors import NotFound

pytestmark = pytest.mark.anyio


async def change(reference: str) -> str:
    if reference == "gone":
        raise NotFound("machine gone not found")
    if reference == "held":
        raise Failure("it is held", ExitStatus.UNAVAILABLE)
    return f"id-of-{reference}"


async def test_ids_are_printed_as_they_come_and_the_first_failure_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert await change_each(["a", "held", "gone", "b"], Form.TABLE, change) == ExitStatus.UNAVAILABLE
    said = capsys.readouterr()
    assert said.out == "id-of-a\nid-of-b\n"
    assert said.err.count("error: ") == 2


async def test_json_has_each_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert await change_each(["a", "gone"], Form.JSON, change) == ExitStatus.NOT_FOUND
    assert json.loads(capsys.readouterr().out) == [
        {"named": "a", "id": "id-of-a", "error": None},
        {"named": "gone", "id": None, "error": "machine gone not found"},
    ]


async def test_nothing_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert await change_each([], Form.JSON, change) == ExitStatus.OK
    assert json.loads(capsys.readouterr().out) == []
