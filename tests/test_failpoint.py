"""The process ends where it is told to, and nowhere else; every place that code names is declared, and the reverse."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hawker import failpoint
from hawker.up.wiring import NODE_FLOWS

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from hawker.failpoint import enter, inside, reach
inside("half")
reach("make.cut.before")
enter("make.cut")
inside("half")
enter("make.cut.undo")
with ThreadPoolExecutor() as thread:
    thread.submit(copy_context().run, inside, "half").result()
reach("make.cut.after")
print("alive")
"""


@pytest.mark.parametrize(
    ("armed", "returncode"),
    [
        (None, 0),
        ("make.cut.after", -signal.SIGKILL),
        ("make.cut.half", -signal.SIGKILL),
        ("make.cut.undo.half", -signal.SIGKILL),
        ("half", 0),
        ("make.cut", 0),
        ("other.cut.after", 0),
    ],
)
def test_the_process_is_killed_at_the_named_place_only(armed: str | None, returncode: int) -> None:
    env = {**os.environ, **({} if armed is None else {failpoint.VARIABLE: armed})}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == returncode, done.stderr
    assert done.stdout == ("alive\n" if returncode == 0 else "")


def test_a_listing_names_every_place_in_order() -> None:
    program = f"import logging; logging.basicConfig(level='INFO', format='%(message)s %(place)s'){PROGRAM}"
    env = {**os.environ, failpoint.VARIABLE: failpoint.LISTING}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    places = ["make.cut.before", "make.cut.half", "make.cut.undo.half", "make.cut.after"]
    assert done.stderr.splitlines() == [f"{failpoint.REACHED} {place}" for place in places]


def named(*functions: str) -> set[str]:
    """The literal first arguments of every call of these functions, or methods, in the product."""
    calls = (node for file in source(functions) for node in ast.walk(file) if isinstance(node, ast.Call) and node.args)
    first = (call.args[0] for call in calls if _name(call.func) in functions)
    return {each.value for each in first if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def source(functions: tuple[str, ...]) -> list[ast.Module]:
    """Of the files that have one of these names, however it is meant."""
    texts = [file.read_text() for file in Path(failpoint.__file__).parent.rglob("*.py")]
    return [ast.parse(text) for text in texts if any(f"{name}(" in text for name in functions)]


def test_points_in_code_and_points_in_the_tables_are_the_same() -> None:
    declared = {point.removeprefix("undo.") for flow in NODE_FLOWS for step in flow.steps for point in step.points}
    inside = {point for point in named("inside", "reach_inside", "reach") if "." not in point}
    assert inside == declared


def test_every_place_elsewhere_is_declared() -> None:
    outright = {place for place in named("reach") if place.count(".") > 1}
    assert outright <= {*failpoint.ELSEWHERE, *failpoint.OF_TWO_NODES, *failpoint.OF_VERIFICATION}
    assert {place for place in failpoint.ELSEWHERE if ".accept." not in place} <= outright
