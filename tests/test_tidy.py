"""The house rules of CONTRIBUTING.md, held against every file of the project. The rules are in `tests/tidy/`."""

import pytest

from tests.tidy.exceptions import EXCEPTIONS
from tests.tidy.rules import RULES, Rule, broken, unneeded
from tests.tidy.tree import Tree, project


@pytest.fixture(scope="module")
def tree() -> Tree:
    return project()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps(rule: Rule, tree: Tree) -> None:
    findings = broken(rule, tree, EXCEPTIONS)
    if findings:
        pytest.fail(f"{rule.__doc__}\n" + "\n".join(map(str, findings)), pytrace=False)


def test_every_exception_is_needed_and_says_why(tree: Tree) -> None:
    assert unneeded(tree, EXCEPTIONS) == []
    assert [line for line in EXCEPTIONS if len(line.reason) < 15] == []


def test_the_rules_see_the_project(tree: Tree) -> None:
    assert {"Makefile", "src/hawker/errors.py", "tests/test_tidy.py"} <= {file.path for file in tree.files}
