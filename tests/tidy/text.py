"""What no committed text may hold: unfinished work, places of one developer's machine, addresses of registries."""

import re
from collections.abc import Iterator

from tests.tidy.tree import Finding, Tree

# Each pattern is written so that it does not match itself.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X{3})\b|NotImplemented[E]rror")
PLACES = re.compile(r"(?<![\w.])/(?:home|Users|work|workspace|builds)/[\w.-]+")
REGISTRIES = re.compile(
    r"\b(?:pypi|pythonhosted|npmjs|debian|golang|crates|maven|yarnpkg)\.(?:org|com|io)\b", re.IGNORECASE
)


def finished(tree: Tree) -> Iterator[Finding]:
    """Work that is left goes into an issue."""
    yield from _matches(tree, "finished", UNFINISHED, "unfinished work")


def no_places(tree: Tree) -> Iterator[Finding]:
    """The project builds anywhere, so it names no checkout's place."""
    yield from _matches(tree, "no_places", PLACES, "a path of one machine")


def no_registries(tree: Tree) -> Iterator[Finding]:
    """Where packages come from is the business of whoever installs them."""
    yield from _matches(tree, "no_registries", REGISTRIES, "a package registry's address")


def _matches(tree: Tree, rule: str, pattern: re.Pattern[str], says: str) -> Iterator[Finding]:
    for file in tree.files:
        for number, line in enumerate(file.lines, 1):
            for match in pattern.finditer(line):
                yield Finding(rule, file.path, number, match[0], says)
