"""What no committed text may hold: unfinished work, places of one developer's machine, addresses of registries, and
links that lead nowhere."""

import posixpath
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import PurePosixPath

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


_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(tree: Tree) -> Iterator[Finding]:
    """A link of a page leads to a file, a folder or a heading that is there."""
    pages = {
        file.path: _FENCE.sub(lambda code: "\n" * code[0].count("\n"), file.text)
        for file in tree.files
        if file.path.endswith(".md")
    }
    there = {
        str(place) for file in tree.files for place in (PurePosixPath(file.path), *PurePosixPath(file.path).parents)
    }
    for path, page in pages.items():
        for number, line in enumerate(page.splitlines(), 1):
            for target in _LINK.findall(line):
                if "://" not in target and not _leads(path, target, pages, there):
                    yield Finding("links", path, number, target, "a link that leads nowhere")


def _leads(path: str, target: str, pages: Mapping[str, str], there: Container[str]) -> bool:
    name, _, heading = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
    return found in there and (not heading or heading in _anchors(pages.get(found, "")))


def _anchors(page: str) -> set[str]:
    """As forges make them of headings."""
    headings = (line.lstrip("#").strip().lower() for line in page.splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def _matches(tree: Tree, rule: str, pattern: re.Pattern[str], says: str) -> Iterator[Finding]:
    for file in tree.files:
        for number, line in enumerate(file.lines, 1):
            for match in pattern.finditer(line):
                yield Finding(rule, file.path, number, match[0], says)
