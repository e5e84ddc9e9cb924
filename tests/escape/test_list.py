"""The lists of attempts in the threat models are the list of the tests: none is promised that is not there, none of
this directory is left out."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path("tests/escape")
LISTS = (ROOT / "docs/microvm-threat-model.md", ROOT / "docs/threat-model.md")


def promised() -> set[tuple[str, str]]:
    """Path of the file, name of the test."""
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", "".join(page.read_text() for page in LISTS))
    return {(file if "/" in file else str(HERE / file), name) for file, name in found}


def found_in(file: str) -> set[tuple[str, str]]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    syntax = ast.parse((ROOT / file).read_text())
    names = (node.name for node in syntax.body if isinstance(node, functions))
    return {(file, name) for name in names if name.startswith("test_")}


def test_every_attempt_of_the_list_has_its_test() -> None:
    there = {each for file, _ in promised() for each in found_in(file)}
    assert promised() - there == set()


def test_every_test_of_this_directory_is_on_the_list() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / HERE).glob("test_*.py") if path != Path(__file__)]
    there = {each for file in files for each in found_in(str(file))}
    assert there - promised() == set()
