import pytest

from tests.tidy import calls
from tests.tidy.rules import Rule
from tests.tidy.tree import tree_of


def subjects(rule: Rule, text: str, path: str = "src/hawker/worker/health.py") -> list[str]:
    return [finding.subject for finding in rule(tree_of({path: text}))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nt.monotonic()", "time.monotonic"),
        ("from time import time\nnow = time()", "time.time"),
        ("from time import sleep as rest\nrest(1)", "time.sleep"),
        ("import random\nrandom.shuffle(x)", "random.shuffle"),
        ("from random import Random\nRandom(1)", "random.Random"),
        ("import os\nos.urandom(4)", "os.urandom"),
        ("import secrets\nsecrets.token_hex()", "secrets.token_hex"),
        ("import asyncio\nasyncio.create_task(x)", "asyncio.create_task"),
        ("import asyncio\nasyncio.ensure_future(x)", "asyncio.ensure_future"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.utcnow()", "datetime.datetime.utcnow"),
        ("import time\ndef f(clock=time.time): ...", "time.time"),
        ("import anyio\nasync def f():\n    await anyio.sleep(1)", "anyio.sleep"),
    ],
)
def test_a_banned_call_is_found_under_any_name(text: str, name: str) -> None:
    assert subjects(calls.banned, text) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "def f(clock):\n    clock.time()\n    clock.random()",
        "import time\ntime.strftime('%H')",
        "import os\nos.getpid()",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)",
        "def f(time):\n    return time.time",
        "'time.time()'  # time.time()",
    ],
)
def test_a_line_that_only_looks_like_a_banned_call_is_not_found(text: str) -> None:
    assert subjects(calls.banned, text) == []


def test_a_test_may_read_the_clock_but_not_sleep() -> None:
    text = "import time, anyio\ntime.monotonic()\ntime.sleep(1)\nanyio.sleep(1)\n"
    assert subjects(calls.banned, text, "tests/worker/test_health.py") == ["time.sleep", "anyio.sleep"]


def test_a_task_outside_a_group_is_found_on_any_loop() -> None:
    assert subjects(calls.loose_tasks, "self.loop.create_task(work())") == ["create_task"]
    assert subjects(calls.loose_tasks, "group.start_soon(work)") == []


def test_only_the_command_line_prints() -> None:
    assert subjects(calls.printing, "print('ready')") == ["print"]
    assert subjects(calls.printing, "from rich import print as show\nshow('ready')") == ["rich.print"]
    assert subjects(calls.printing, "print('ready')", "src/hawker/cli/apps.py") == []
    assert subjects(calls.printing, "blueprint('x')") == []


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException as error", " (OSError, Exception)"])
def test_catching_everything_is_found(caught: str) -> None:
    assert subjects(calls.swallowing, f"try:\n    f()\nexcept{caught}:\n    log()\n") == ["except"]
    assert subjects(calls.swallowing, f"try:\n    f()\nexcept{caught}:\n    undo()\n    raise\n") == []


def test_turning_everything_into_one_error_is_found() -> None:
    text = "try:\n    f()\nexcept Exception as error:\n    raise ValueError from error\n"
    assert subjects(calls.swallowing, text) == ["except"]


def test_catching_what_is_expected_is_not_found() -> None:
    assert subjects(calls.swallowing, "try:\n    f()\nexcept (OSError, KeyError):\n    pass\n") == []


def test_suppressing_everything_is_found() -> None:
    assert subjects(calls.swallowing, "from contextlib import suppress\nsuppress(OSError, Exception)") == ["suppress"]
    assert subjects(calls.swallowing, "import contextlib\ncontextlib.suppress(OSError)") == []
